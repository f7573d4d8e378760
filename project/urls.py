"""The project's addresses."""

from django.contrib import admin
from django.contrib.auth.views import LoginView, LogoutView
from django.contrib.staticfiles.views import serve
from django.urls import include, path, re_path
from django.views.generic import TemplateView

urlpatterns = [
    path("", TemplateView.as_view(template_name="home.html"), name="home"),
    path("admin/", admin.site.urls),
    path("work/", include("supervision.pages.urls")),
    path("sign-in/", LoginView.as_view(template_name="sign_in.html", redirect_authenticated_user=True), name="sign_in"),
    path("sign-out/", TemplateView.as_view(template_name="sign_out.html"), name="sign_out"),
    path("signed-out/", LogoutView.as_view(next_page="home"), name="signed_out"),
    path("api/", include("supervision.api.urls")),
    # The demo runs without DEBUG and without a web server in front, so it serves its own static files. "insecure" means
    # inefficient here: only files that the staticfiles finders know are served.
    re_path(r"^static/(?P<path>.*)$", serve, {"insecure": True}),
]
