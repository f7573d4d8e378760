"""The files of docs/deploy are what their readers accept, and what our command keeps."""

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from django.core.management import get_commands, load_command_class

from supervision.conf import Settings
from supervision.worker.cluster import Cluster as SupervisedCluster
from supervision.worker.sentinel import Sentinel
from tests.acceptance import tasks
from tests.processes import ROOT, StartCluster, wait_for

DEPLOY = ROOT / "docs" / "deploy"
UNITS = sorted([*DEPLOY.glob("*.service"), *DEPLOY.glob("*.timer")])
LONGEST_STOP = Settings.STOP_GRACE_SECONDS + SupervisedCluster.AFTER_GRACE_SECONDS + Sentinel.AFTER_GRACE_SECONDS


def commands_in(text: str) -> list[str]:
    return re.findall(r"supervision_\w+[^\n]*", text)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze on this machine")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    assert len(UNITS) == 3
    for unit in UNITS:  # the interpreter's place is the reader's to say; systemd wants one that exists
        text = unit.read_text().replace("/srv/project/.venv/bin/python", "/bin/true")
        (tmp_path / unit.name).write_text(text)
    verdict = subprocess.run(
        ["systemd-analyze", "verify", *(tmp_path / unit.name for unit in UNITS)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (verdict.returncode, verdict.stdout + verdict.stderr) == (0, "")


def test_kubernetes_accepts_the_manifest() -> None:
    documents = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
    assert [document["kind"] for document in documents] == ["Deployment", "CronJob"]
    for document in documents:
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


def test_whoever_stops_a_cluster_waits_long_enough() -> None:
    unit = (DEPLOY / "supervision-worker.service").read_text()
    seconds = [int(each) for each in re.findall(r"TimeoutStopSec=(\d+)", unit)]
    seconds += map(int, re.findall(r"terminationGracePeriodSeconds: (\d+)", (DEPLOY / "kubernetes.yaml").read_text()))
    assert len(seconds) == 2
    assert min(seconds) > LONGEST_STOP


def test_commands_in_the_files_take_the_options_that_stand_there() -> None:
    text = "\n".join(file.read_text() for file in DEPLOY.iterdir())
    lines = [re.sub(r'[",\[\]]', " ", line).split() for line in commands_in(text) if "manage.py" in text]
    called = [line for line in lines if line[0] in get_commands() and not line[0].endswith(":")]
    assert {line[0] for line in called} == {"supervision_worker", "supervision_health"}
    for name, *options in called:
        parser = load_command_class("supervision", name).create_parser("manage.py", name)
        parser.parse_args([option for option in options if not option.startswith(("(", "#"))])


# --- what the files rely on -------------------------------------------------------------------------------------------


@pytest.mark.cluster
def test_cluster_tells_systemd_that_it_is_ready_that_it_lives_and_that_it_stops(
    start_cluster: StartCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        cluster = start_cluster(workers=1)
        heard = [systemd.recv(100) for _ in range(3)]
        assert heard.count(b"READY=1") == 1
        assert b"WATCHDOG=1" in heard
        cluster.stop()
        rest = [systemd.recv(100)]
        while rest[-1] != b"STOPPING=1":
            rest.append(systemd.recv(100))
        assert set(rest) <= {b"WATCHDOG=1", b"STOPPING=1"}


@pytest.mark.cluster
def test_alive_file_is_touched_while_the_cluster_lives(start_cluster: StartCluster, tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    cluster = start_cluster("--alive-file", str(alive), workers=1)
    first = wait_for(lambda: alive.exists() and alive.stat().st_mtime, "it is touched")
    wait_for(lambda: alive.stat().st_mtime > first, "it is touched again")
    os.kill(cluster.pid, signal.SIGSTOP)
    stood = alive.stat().st_mtime
    quiet = time.monotonic() + 1.5
    wait_for(lambda: time.monotonic() > quiet, "a touch would be overdue")
    assert alive.stat().st_mtime == stood
    os.kill(cluster.pid, signal.SIGCONT)
    tasks.wait_for_state(tasks.start(), "completed")
    assert cluster.stop() == 0
    assert not alive.exists()
