"""Files of tasks: uploads and results in Django's default storage, and the sealed references that rows keep.

A reference is JSON: ``{"stored_file": path, "name": ..., "size": ..., "seal": ...}``. The seal is made with
the project's SECRET_KEY by whoever stored the file: who can write an argument can't name somebody else's file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from django.core import signing
from django.core.files import File
from django.core.files.storage import default_storage
from django.utils.text import get_valid_filename

from supervision.conf import settings
from supervision.errors import NotStorable, TooLarge

_SALT = "supervision.files"
_FOLDER = "supervision"


class StoredFile(File):  # type: ignore[type-arg]
    """A file in the default storage, opened when it is first read; what an argument annotated so arrives as.

    ``name`` is what the person called it, ``path`` where it lies, ``reference`` what a result or a decision may keep.

    >>> with upload.open() as file:
    ...     rows = file.read()
    """

    def __init__(self, path: str, name: str, size: int) -> None:
        super().__init__(None, name)
        self.path = path
        self._size = size
        self._opened: Any = None

    @property
    def size(self) -> int:
        return self._size

    @property
    def file(self) -> Any:
        if self._opened is None:
            self._opened = default_storage.open(self.path, "rb")
        return self._opened

    @file.setter
    def file(self, value: Any) -> None:
        self._opened = value

    @property
    def closed(self) -> bool:
        return self._opened is None or self._opened.closed

    def open(self, mode: str | None = None, *args: Any, **kwargs: Any) -> StoredFile:
        """At its beginning; the mode is always binary reading."""
        self.close()
        self._opened = default_storage.open(self.path, "rb")
        return self

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    @property
    def reference(self) -> dict[str, Any]:
        return _reference(self.path, str(self.name), self._size)


def store(content: File[Any], name: str = "", *, place: str = "file") -> StoredFile:
    """Keeps the content under a path of its own in the default storage. Raises TooLarge over MAX_UPLOAD_BYTES."""
    size = content.size
    if size > settings.MAX_UPLOAD_BYTES:
        raise TooLarge(place, size, settings.MAX_UPLOAD_BYTES, "MAX_UPLOAD_BYTES")
    shown = os.path.basename(name or content.name or "file")[:150] or "file"
    path = default_storage.save(f"{_FOLDER}/{uuid4()}/{_safe(shown)}", content)
    return StoredFile(path, shown, size)


def discard(stored: StoredFile) -> None:
    """Removes what was stored for a row that was then refused."""
    stored.close()
    default_storage.delete(stored.path)


@contextmanager
def kept_on_success() -> Iterator[list[StoredFile]]:
    """Append what you store; if the block raises it is removed again. (A process killed in between leaves a file that
    nothing refers to.)"""
    stored: list[StoredFile] = []
    try:
        yield stored
    except BaseException:
        for each in stored:
            discard(each)
        raise


def is_reference(value: Any) -> bool:
    """Whether the JSON value looks like a reference; ``resolve`` says whether it is one."""
    return isinstance(value, Mapping) and isinstance(value.get("stored_file"), str) and "seal" in value


def resolve(reference: Any, *, place: str = "file") -> StoredFile:
    """The file of a reference, not opened. Raises NotStorable for one that this project did not seal."""
    if not is_reference(reference) or not _is_sealed(reference):
        raise NotStorable(place, "it is no file that was stored here")
    return StoredFile(reference["stored_file"], str(reference.get("name") or "file"), int(reference.get("size") or 0))


def found_in(value: Any) -> Iterator[StoredFile]:
    """Every stored file that a JSON value refers to, in order, with forged references left out."""
    if is_reference(value):
        if _is_sealed(value):
            yield resolve(value)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from found_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from found_in(item)


def _reference(path: str, name: str, size: int) -> dict[str, Any]:
    return {"stored_file": path, "name": name, "size": size, "seal": _signer().signature(_sealed(path, name, size))}


def _is_sealed(reference: Mapping[str, Any]) -> bool:
    text = _sealed(reference["stored_file"], str(reference.get("name")), reference.get("size"))
    try:
        _signer().unsign(f"{text}:{reference['seal']}")
    except signing.BadSignature:
        return False
    return True


def _sealed(path: str, name: str, size: Any) -> str:
    return f"{path}|{name}|{size}"


def _signer() -> signing.Signer:
    return signing.Signer(salt=_SALT)


def _safe(name: str) -> str:
    try:
        return get_valid_filename(name)
    except Exception:  # SuspiciousFileOperation: nothing valid is left of it
        return "file"
