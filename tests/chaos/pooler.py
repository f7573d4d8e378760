"""PgBouncer in transaction mode, before the suite's own server."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from tests.crash.servers import server_user
from tests.processes import wait_for

_CONFIGURATION = """
[databases]
postgres = host=127.0.0.1 port={server} dbname=postgres user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 10
max_client_conn = 200
ignore_startup_parameters = extra_float_digits
server_login_retry = 0
"""


def program() -> str | None:
    """Debian's package puts it where not every PATH looks."""
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


class Pooler:
    """A pooler for that server; ``url`` is what clients use in its place."""

    def __init__(self, server_url: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"postgres://postgres@127.0.0.1:{port}/postgres"
        self._home = Path(tempfile.mkdtemp(prefix="pgbouncer-"))
        self._home.chmod(0o755)
        configuration = self._home / "pgbouncer.ini"
        configuration.write_text(_CONFIGURATION.format(server=urlsplit(server_url).port, port=port))
        self._log = (self._home / "log").open("wb")
        self._process = subprocess.Popen(
            [str(program()), str(configuration)],
            user=server_user() if os.getuid() == 0 else None,  # it refuses root, as the server does
            stdout=self._log,
            stderr=self._log,
        )
        try:
            wait_for(self._answers, "the pooler answers")
        except AssertionError:
            self.stop()
            raise

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()
        shutil.rmtree(self._home)

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url, prepare_threshold=None).close()
        except psycopg.OperationalError:
            return False
        return True
