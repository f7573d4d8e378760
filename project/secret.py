"""The project's own secret key."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from django.core.management.utils import get_random_secret_key


def kept_secret_key(path: Path) -> str:
    """Return the secret key kept at ``path``; make one, readable by its owner only, if there is none.

    Processes that start together agree on one key.
    """
    with suppress(FileNotFoundError):
        return path.read_text()
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mkstemp's mode is 0600
    try:
        with os.fdopen(handle, "w") as file:
            file.write(get_random_secret_key())
        # A link appears whole or not at all, and never replaces the key of a process that was faster.
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        os.unlink(draft)
    return path.read_text()
