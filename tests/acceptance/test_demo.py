"""``manage.py demo``: it shows itself, and whatever ends it, it leaves no process behind."""

import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import psutil
import pytest
from django.contrib.auth import authenticate, get_user_model

from project.retraining import customers
from supervision.kernel.models import Task
from tests.processes import ROOT, Cluster, StartCluster, wait_for

pytestmark = pytest.mark.cluster


@pytest.fixture(autouse=True)
def _media(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SUPERVISION_TEST_MEDIA", str(tmp_path / "media"))


def start_demo(start_cluster: StartCluster, *arguments: str) -> Cluster:
    """Starts the demo on any free port and waits until it has said where it is."""
    demo = start_cluster("--settings=tests.demo_settings", "--port", "0", *arguments, command="demo")
    wait_for(lambda: "Ctrl-C stops everything" in demo.output(), "the demo runs", 30)
    return demo


def wait_for_workers(demo: Cluster) -> None:
    """Wait until the demo, its training service and the six processes of its cluster are there."""
    wait_for(lambda: len(demo.alive()) == 8, "the workers are there", 20)


def server_of(data: Path) -> int:
    """The pid of the embedded server in that directory."""
    return int((data / "postmaster.pid").read_text().split("\n")[0])


def address_of(demo: Cluster) -> str:
    (address,) = re.findall(r"^The demo runs at (http://127\.0\.0\.1:\d+/)$", demo.output(), re.MULTILINE)
    return str(address)


def test_it_shows_the_address_a_password_and_a_sample_task_once(start_cluster: StartCluster, tmp_path: Path) -> None:
    demo = start_demo(start_cluster)
    with urllib.request.urlopen(f"{address_of(demo)}admin/login/", timeout=10) as response:
        assert response.status == 200
    with urllib.request.urlopen(address_of(demo), timeout=10) as response:
        assert b"Background work under supervision" in response.read()
    password = re.findall(r"as “demo”, password: (\S+)\.", demo.output())[0]
    user = authenticate(username="demo", password=password)
    assert user is not None
    assert user.is_superuser
    task = Task.objects.get(subject="customers.csv")
    wait_for(lambda: Task.objects.awaiting_answer().exists(), "the sample asks")
    assert task.owner == authenticate(username="customer", password=password)
    assert demo.stop(seconds=5) == 0
    assert "\nStopping.\n" in demo.output()

    demo = start_demo(start_cluster, "--password", "another-1")
    assert Task.objects.filter(subject="customers.csv").count() == 1
    assert len(list(tmp_path.glob("media/supervision/*"))) == 1
    assert Task.objects.filter(body__contains="retraining").count() == len(customers())
    assert authenticate(username="demo", password="another-1") == user
    assert "another-1" not in demo.output()
    assert demo.stop(seconds=5) == 0


@pytest.mark.parametrize(
    ("signum", "group"),
    [(signal.SIGINT, True), (signal.SIGTERM, True), (signal.SIGHUP, False)],
    ids=["Ctrl-C", "SIGTERM to the group", "SIGHUP"],
)
def test_it_stops_within_seconds_and_leaves_no_process(
    start_cluster: StartCluster, signum: signal.Signals, group: bool
) -> None:
    assert start_demo(start_cluster).stop(signum, group=group, seconds=5) == 0


def test_killed_itself_it_leaves_no_process(start_cluster: StartCluster) -> None:
    demo = start_demo(start_cluster)
    wait_for_workers(demo)
    assert demo.stop(signal.SIGKILL, seconds=5) == -signal.SIGKILL


def test_without_its_workers_it_says_so_and_ends(start_cluster: StartCluster) -> None:
    demo = start_demo(start_cluster)
    (workers,) = (child for child in psutil.Process(demo.pid).children() if "supervision_worker" in child.cmdline())
    workers.kill()
    assert demo.wait_until_gone(5) == 1
    assert "CommandError: The workers have ended unexpectedly (SIGKILL)." in demo.output()


def test_a_port_that_is_taken_is_said_in_one_line(start_cluster: StartCluster) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        demo = start_cluster("--settings=tests.demo_settings", "--port", port, command="demo")
        assert demo.wait_until_gone(20) == 1
    assert demo.output() == (
        f"CommandError: Port {port} can't be used (Address already in use): choose another with --port.\n"
    )


def test_a_user_of_its_administrators_name_is_left_alone(start_cluster: StartCluster) -> None:
    get_user_model().objects.create_user("demo", password="hers")
    demo = start_cluster("--settings=tests.demo_settings", "--port", "0", command="demo")
    assert demo.wait_until_gone(20) == 1
    assert "There is a user “demo” who is no administrator" in demo.output()
    assert not get_user_model().objects.get().is_superuser


@pytest.mark.slow
def test_its_own_database_server_stops_with_it(
    start_cluster: StartCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "postgres"
    monkeypatch.setenv("SUPERVISION_TEST_DATA", str(data))

    for end in (signal.SIGTERM, signal.SIGKILL):
        demo = start_demo(start_cluster)
        wait_for_workers(demo)  # earlier, a killed demo leaves the server to the next process that uses it
        pid = server_of(data)
        assert psutil.pid_exists(pid)
        demo.stop(end, group=end == signal.SIGTERM, seconds=10)
        wait_for(lambda pid=pid: not psutil.pid_exists(pid), "the server is gone", 30)  # type: ignore[misc]


def test_a_process_that_is_ended_by_sigterm_stops_its_server(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from project.database import embedded_postgres\n"
        "embedded_postgres(Path(sys.argv[1])); print('ready', flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "postgres")], cwd=ROOT, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        server = server_of(tmp_path / "postgres")
        process.terminate()
        assert process.wait(10) == 128 + signal.SIGTERM
    wait_for(lambda: not psutil.pid_exists(server), "the server is gone", 30)
