"""The health check as a page: what ``manage.py supervision_health`` says, for people.

Route it through the admin site, which checks that the visitor is staff::

    path("health/", self.admin_site.admin_view(health_page), name="supervision_task_health")
"""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _

from supervision.admin.access import may
from supervision.conf import settings
from supervision.worker import health


def health_page(request: HttpRequest) -> HttpResponse:
    """For whoever may view all tasks: the findings name bodies, queues and ids. GET changes nothing."""
    if not may(request.user, "view_task") or (settings.VISIBLE_TASKS and not request.user.is_superuser):
        raise PermissionDenied
    report = health.report()
    context: dict[str, Any] = {
        **admin.site.each_context(request),
        "title": _("Health"),
        "opts": apps.get_model("supervision", "task")._meta,
        "report": report,
    }
    return TemplateResponse(request, "supervision/admin/health.html", context)
