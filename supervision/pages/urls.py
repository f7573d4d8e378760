"""Everything behind one ``include("supervision.pages.urls")``. Ids are taken as text: a malformed one is one that isn't
there."""

from django.urls import path

from supervision.pages import acting, answering, reading, webhook

app_name = "supervision_pages"

urlpatterns = [
    path("", reading.tasks, name="tasks"),
    path("answer/", answering.answer, name="answer"),
    path("signal/", webhook.receive, name="signal"),
    path("questions/<str:pk>/", answering.asked, name="asked"),
    path("<str:pk>/", reading.task, name="task"),
    path("<str:pk>/live/", reading.live, name="live"),
    path("<str:pk>/files/<str:number>/", reading.file, name="file"),
    path("<str:pk>/whole/<str:what>/", reading.whole, name="whole"),
    path("<str:pk>/act/<str:name>/", acting.act, name="act"),
    path("<str:pk>/questions/<str:question>/", acting.answer, name="question"),
]
