"""The demo's parts that run beside it: the worker cluster in a process, the web server in a thread, and their end."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

from django.conf import settings
from django.core.management.base import CommandError
from django.core.servers.basehttp import ThreadedWSGIServer, WSGIRequestHandler, get_internal_wsgi_application
from django.utils.translation import gettext as _

from supervision.conf import settings as supervision_settings

HOST = "127.0.0.1"
_PR_SET_PDEATHSIG = 1


class StopSignals:
    """SIGINT, SIGTERM and SIGHUP, counted instead of obeyed while the block runs.

    Until ``defer`` they end the process by SystemExit, so that its exit handlers run.
    """

    def __init__(self) -> None:
        self.count = 0
        self._deferred = False

    def __enter__(self) -> Self:
        signums = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        self._before = {signum: signal.signal(signum, self._note) for signum in signums}
        return self

    def __exit__(self, *_: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    def defer(self) -> None:
        """From now on ``count`` is to be looked at, several times a second."""
        self._deferred = True

    def _note(self, signum: int, frame: FrameType | None) -> None:
        self.count += 1
        if not self._deferred:
            raise SystemExit(128 + signum)


class Workers:
    """``manage.py supervision_worker`` in a child process, of this process's group.

    It stops when the block ends, and also when this process is killed (on Linux; elsewhere it would run on).
    """

    AFTER_GRACE_SECONDS = 10.0

    def __init__(self, count: int, signals: StopSignals, *, verbosity: int) -> None:
        self._signals = signals
        self._command = [
            sys.executable,
            *(f"-W{option}" for option in sys.warnoptions),
            str(settings.BASE_DIR / "manage.py"),
            "supervision_worker",
            f"--workers={count}",
            f"--verbosity={verbosity}",
        ]
        self._is_quiet = verbosity == 0

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(  # noqa: S603 (all of it is ours)
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if self._is_quiet else None,
            preexec_fn=_stopped_with(os.getpid()),  # safe: no thread runs yet
        )
        return self

    def __exit__(self, *_: object) -> None:
        """Ask it to stop, pass on what signals still come, and kill it if it doesn't heed."""
        passed_on = 0
        deadline = time.monotonic() + supervision_settings.STOP_GRACE_SECONDS + self.AFTER_GRACE_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            if passed_on < max(1, self._signals.count):
                passed_on += 1
                self._process.terminate()
            time.sleep(0.02)
        self._process.kill()
        self._process.wait()

    def check(self) -> None:
        """Raises CommandError if it has ended by itself."""
        status = self._process.poll()
        if status is None or self._signals.count:  # a signal to the group has reached it too
            return
        how = signal.Signals(-status).name if status < 0 else _("exit status %(status)s") % {"status": status}
        raise CommandError(
            _("The workers have ended unexpectedly (%(how)s). No task is lost: the same command goes on with it.")
            % {"how": how}
        )


class _Quiet(WSGIRequestHandler):
    """Says nothing of what went well."""

    def log_request(self, code: Any = "-", size: Any = "-") -> None:
        if not str(code).startswith(("2", "3")):
            super().log_request(code, size)


@contextmanager
def listening(port: int) -> Iterator[Callable[[], str]]:
    """Takes the port (0: any free one); calling what is yielded starts the web server there and returns its address.

    The server stops when the block ends. Raises CommandError for a port that can't be had.
    """
    try:
        server = ThreadedWSGIServer((HOST, port), _Quiet)
    except OSError as error:
        raise CommandError(
            _("Port %(port)s can't be used (%(error)s): choose another with --port.")
            % {"port": port, "error": error.strerror}
        ) from None
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, name="demo-web", daemon=True)

    def serve() -> str:
        server.set_app(get_internal_wsgi_application())
        thread.start()
        return f"http://{HOST}:{server.server_port}/"

    try:
        yield serve
    finally:
        if thread.is_alive():
            server.shutdown()
        server.server_close()


def _stopped_with(parent: int) -> Callable[[], None] | None:
    """What a child runs before its program, so that it gets SIGTERM when ``parent`` ends, however that ends."""
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)  # loaded before the fork

    def tie() -> None:
        library.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:  # it had ended before the tie was made
            os._exit(1)

    return tie
