"""The files of the example work: paths on disk for the command line, uploads for everybody else.

An output appears whole or not at all, whatever is killed, and whichever of two workers is late.
"""

import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from django.core.files.base import File
from django.core.signing import BadSignature, Signer
from django.utils.translation import gettext as _

from project.csv_source import BadInput, Readable
from supervision.engines import StoredFile, store

MAX_INPUT_BYTES = 50 * 1024 * 1024
_SUFFIX = "-with-country-codes"


class Files(Protocol):
    """An input and its output. ``tag`` names the task, so that drafts of a killed drive are found again."""

    @property
    def output(self) -> Any:
        """Where the output is, once it is there: what the task's result says of it."""

    def check_output(self) -> None:
        """Raises ``BadInput`` if nothing can be written there."""

    def reading(self) -> AbstractContextManager[Readable]:
        """The opened input. Raises ``BadInput`` if there is none."""

    def replacing(self, tag: str) -> AbstractContextManager[IO[bytes]]:
        """A file to write, which is the output once the block has ended well, and gone if it has not."""

    def discard_drafts(self, tag: str) -> None:
        """Remove what killed drives of that task have left."""


@dataclass(frozen=True)
class OnDisk:
    """Files by their absolute paths."""

    source: Path
    target: Path

    @property
    def output(self) -> str:
        return str(self.target)

    def check_output(self) -> None:
        folder = self.target.parent
        if not folder.is_dir():
            raise BadInput(_("There is no folder “%(folder)s” to write the output to.") % {"folder": folder})
        if not os.access(folder, os.W_OK | os.X_OK):
            raise BadInput(_("Nothing can be written to the folder “%(folder)s”.") % {"folder": folder})
        if self.target.exists() and not self.target.is_file():
            raise BadInput(_("“%(path)s” can't be the output: it is no ordinary file.") % {"path": self.target})
        if self.target.exists() and self.source.exists() and self.target.samefile(self.source):
            raise BadInput(_("The output would replace the input “%(path)s”: name another.") % {"path": self.source})

    @contextmanager
    def reading(self) -> Iterator[Readable]:
        if self.source.exists() and not self.source.is_file():
            # Looked at first, as opening a pipe that nobody writes to would wait for ever.
            raise BadInput(_("“%(path)s” is no ordinary file.") % {"path": self.source})
        with _explained(str(self.source)):
            file = self.source.open("rb")
        with file:
            yield file

    @contextmanager
    def replacing(self, tag: str) -> Iterator[IO[bytes]]:
        self.discard_drafts(tag)
        # A name of this drive alone: a worker that was overtaken can't move another one's half-written draft.
        draft = self.target.parent / f".{tag}.{secrets.token_hex(4)}.part"
        try:
            with draft.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self.target)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise

    def discard_drafts(self, tag: str) -> None:
        for draft in self.target.parent.glob(f".{tag}.*.part"):
            draft.unlink(missing_ok=True)


class Uploaded:
    """A stored upload, and an output that is stored like one: what is half-written is a file that nothing refers to."""

    def __init__(self, source: StoredFile) -> None:
        self._source = source
        self._stored: StoredFile | None = None

    @property
    def output(self) -> Any:
        return None if self._stored is None else self._stored.reference

    def check_output(self) -> None:
        pass  # the name is the storage's

    @contextmanager
    def reading(self) -> Iterator[Readable]:
        with _explained(str(self._source.name)):
            file = self._source.open()
        with file:
            yield file

    @contextmanager
    def replacing(self, tag: str) -> Iterator[IO[bytes]]:
        with tempfile.TemporaryFile() as draft:
            yield draft
            draft.seek(0)  # which flushes it, so that its size is known
            self._stored = store(File(draft), beside(Path(str(self._source.name))).name)

    def discard_drafts(self, tag: str) -> None:
        pass  # they ended with their process


def beside(source: Path) -> Path:
    """Where the output goes when nobody says."""
    return source.with_name(f"{source.stem}{_SUFFIX}{source.suffix}")


# --- who may name a path ----------------------------------------------------------------------------------------------

_SALT = "project.files.permit"


def permit(path: str, output: str) -> str:
    """The proof that a path was given on the command line, by somebody who may read and write files here anyway.

    The arguments of a task may come from a form or the API: without it, whoever may create a task could read and
    replace every file that the worker can.
    """
    return Signer(salt=_SALT).sign_object([path, output])


def is_permitted(path: str, output: str, permitted: str) -> bool:
    """Whether that is the ``permit`` of these paths."""
    try:
        return bool(Signer(salt=_SALT).unsign_object(permitted) == [path, output])
    except (BadSignature, ValueError):
        return False


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """What can go wrong when a file is opened, as ``BadInput``."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise BadInput(_("There is no file “%(name)s”.") % {"name": name}) from None
    except IsADirectoryError:
        raise BadInput(_("“%(name)s” is a folder: name a file.") % {"name": name}) from None
    except PermissionError:
        raise BadInput(_("The file “%(name)s” may not be read by this user.") % {"name": name}) from None
