"""What Django's file backend wrote: the mails that really left."""

from email import message_from_string, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import django


def use_files(settings: Any, directory: Path) -> None:
    """Has mail written into the directory."""
    _use(settings, "filebased", file_path=directory)


def use_server(settings: Any, host: str, port: int) -> None:
    """Has mail sent by SMTP."""
    _use(settings, "smtp", host=host, port=port)


def _use(settings: Any, kind: str, **options: Any) -> None:
    backend = f"django.core.mail.backends.{kind}.EmailBackend"
    if django.VERSION >= (6, 1):
        settings.MAILERS = {"default": {"BACKEND": backend, "OPTIONS": options}}
        return
    settings.EMAIL_BACKEND = backend
    for name, value in options.items():
        setattr(settings, f"EMAIL_{name.upper()}", value)


def sent(directory: Path) -> list[EmailMessage]:
    """In the order in which they were sent. A file may hold several: two workers choose the same name at times."""
    files = sorted(directory.glob("*.log"), key=lambda path: path.stat().st_mtime_ns)
    texts = [text for file in files for text in file.read_text().split("-" * 79 + "\n")[:-1]]
    return [message_from_string(text, policy=policy.default) for text in texts]


def subjects(directory: Path) -> list[str]:
    return [str(mail["subject"]) for mail in sent(directory)]
