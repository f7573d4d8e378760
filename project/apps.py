from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class ProjectConfig(AppConfig):
    """Makes the project an app, so that it can own commands and a ``supervised.py``."""

    name = "project"
    label = "project"
    verbose_name = _("Example project")
