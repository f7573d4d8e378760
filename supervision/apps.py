"""Wiring: checks, and the discovery of each app's ``supervised.py``."""

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _


class SupervisionConfig(AppConfig):
    name = "supervision"
    verbose_name = _("Supervision")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from supervision import checks  # noqa: F401, PLC0415 - registers them, and needs models
        from supervision.engines.machines import checking  # noqa: F401, PLC0415

        autodiscover_modules("supervised")

        from supervision.engines.dags import dags  # noqa: PLC0415

        for dag in dags().values():
            dag.check()
