"""Settings of the example project, for development, the tests and the demo.

Environment: ``DATABASE_URL`` (else an embedded PostgreSQL), ``DJANGO_SECRET_KEY`` (else one is made and kept),
``DJANGO_DEBUG=1``, ``DJANGO_ALLOWED_HOSTS`` (comma-separated, added to the local ones), ``DJANGO_HTTPS=1``
(behind TLS: secure cookies, redirect, HSTS), ``DJANGO_MAIL_DIR`` (where mail is written instead of being sent).
"""

import os
from pathlib import Path
from typing import Any

import dj_database_url
import django
from django.utils.translation import gettext_lazy as _

from project.database import embedded_postgres
from project.secret import kept_secret_key

BASE_DIR = Path(__file__).resolve().parent.parent
DATA_DIR = BASE_DIR / ".data"

DEBUG = os.environ.get("DJANGO_DEBUG", "") == "1"
SECRET_KEY = os.environ.get("DJANGO_SECRET_KEY") or kept_secret_key(DATA_DIR / "secret_key")
ALLOWED_HOSTS = [
    "localhost",
    "127.0.0.1",
    "[::1]",
    *filter(None, os.environ.get("DJANGO_ALLOWED_HOSTS", "").replace(" ", "").split(",")),
]

INSTALLED_APPS = [
    "project",
    "supervision",
    "django_q",
    "django_filters",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "project.security.content_security_policy",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "project.urls"
ASGI_APPLICATION = "project.asgi.application"
WSGI_APPLICATION = "project.wsgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

# Database ------------------------------------------------------------------------------------------------------------

DATABASE_URL = os.environ.get("DATABASE_URL")
_server: dict[str, Any] = (
    dict(dj_database_url.parse(DATABASE_URL)) if DATABASE_URL else embedded_postgres(DATA_DIR / "postgres")
)
DATABASES = {
    "default": {
        **_server,
        "CONN_MAX_AGE": 60,
        "CONN_HEALTH_CHECKS": True,
        # Statements through a server-side-binding psycopg cursor are prepared from the fifth run on, psycopg's own
        # default; Django's default is never. Set None behind a pooler that hands out connections per transaction.
        # No connection pool: cluster processes fork, and a pool's connections must not cross a fork.
        "OPTIONS": {"prepare_threshold": 5, **_server.get("OPTIONS", {})},
        # template1 may be in use by somebody else's session, which CREATE DATABASE refuses.
        "TEST": {"TEMPLATE": "template0"},
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# Supervised work is not a message: the broker class hands out due rows of the task table. The timeout and retry here
# concern django-q2's ordinary messages only.
Q_CLUSTER = {
    "name": "supervision",
    "orm": "default",
    "broker_class": "supervision.worker.broker.Broker",
    "workers": 2,
    "poll": 1,
    "bulk": 1,
    "queue_limit": 1,
    "timeout": 60,
    "retry": 90,
    "ack_failures": True,
    "max_attempts": 1,
    "save_limit": -1,
    "catch_up": False,
    "recycle": 300,
}

# People --------------------------------------------------------------------------------------------------------------

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
LOGIN_URL = "sign_in"
LOGIN_REDIRECT_URL = "supervision_pages:tasks"

LANGUAGE_CODE = "en"
LANGUAGES = [("en", _("English"))]
LOCALE_PATHS = [BASE_DIR / "locale"]
TIME_ZONE = "UTC"
USE_I18N = True
USE_TZ = True

# Mail: into files, so that the demo sends none to anybody -----------------------------------------------------------

_MAIL_BACKEND = "django.core.mail.backends.filebased.EmailBackend"
_MAIL_DIR = os.environ.get("DJANGO_MAIL_DIR") or DATA_DIR / "mail"
if django.VERSION >= (6, 1):
    MAILERS = {"default": {"BACKEND": _MAIL_BACKEND, "OPTIONS": {"file_path": _MAIL_DIR}}}
else:
    EMAIL_BACKEND = _MAIL_BACKEND
    EMAIL_FILE_PATH = _MAIL_DIR

# People are told of questions and dead letters by mail, here into files; and may answer from there.
SUPERVISION = {
    "NOTIFY": ("mail",),
    "BASE_URL": os.environ.get("BASE_URL", "http://127.0.0.1:8000"),
    "ANSWER_LINKS": True,
}

# Files ---------------------------------------------------------------------------------------------------------------

MEDIA_ROOT = DATA_DIR / "media"
STATIC_ROOT = DATA_DIR / "static"
STATIC_URL = "static/"

# Security: beside what Django does by default -------------------------------------------------------------------------

_HTTPS = os.environ.get("DJANGO_HTTPS", "") == "1"
CSRF_COOKIE_SECURE = _HTTPS
SESSION_COOKIE_SECURE = _HTTPS
SECURE_SSL_REDIRECT = _HTTPS
SECURE_HSTS_SECONDS = 3600 if _HTTPS else 0

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "{asctime} {levelname} {name}: {message}", "style": "{"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["console"], "level": "WARNING"},
}
