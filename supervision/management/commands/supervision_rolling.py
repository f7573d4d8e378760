"""Writes the rolling schedules that the code defines into django-q2's table: ``manage.py supervision_rolling``."""

from typing import Any

from django.core.management.base import BaseCommand
from django.utils.translation import gettext as _

from supervision.worker import rolling


class Command(BaseCommand):
    help = _("Brings django-q2's schedules in line with the rolling schedules of this code. Run it with each deploy.")

    def handle(self, *args: Any, **options: Any) -> None:
        names = rolling.install()
        self.stdout.write(
            _("Scheduled: %(names)s.") % {"names": ", ".join(names)} if names else _("No rolling schedule is defined.")
        )
