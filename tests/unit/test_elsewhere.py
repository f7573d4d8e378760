"""Systems that lack what the promises rest on get weaker ones, and are told so."""

import os
import platform
import sys
from io import StringIO

import pytest
from django.core.management import call_command

from supervision.kernel import identity
from supervision.worker import cluster, orphans
from supervision.worker.broker import Broker


@pytest.fixture
def on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as Python tells."""
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.delattr(os, "fork")
    monkeypatch.delattr(os, "uname")


def test_where_there_is_no_proc_a_process_is_known_by_its_pid_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "_stat", lambda pid: None)
    assert identity.started_of(os.getpid()) == ""
    assert not identity.is_gone(os.getpid(), "")
    assert not identity.is_gone(os.getpid(), "123")
    monkeypatch.setattr(os, "kill", lambda *_: (_ for _ in ()).throw(ProcessLookupError))
    assert identity.is_gone(os.getpid(), "")


@pytest.mark.usefixtures("on_windows")
def test_windows_leaves_every_process_to_the_lease_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "kill", lambda *_: pytest.fail("that would be a Ctrl-C"))
    assert not identity.is_gone(1, "")
    assert platform.node()
    assert not orphans.adopt_orphans()


@pytest.mark.usefixtures("on_windows")
def test_worker_command_says_what_is_weaker_where_it_cannot_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Broker] = []

    def run_stock(broker: Broker) -> int:
        ran.append(broker)
        return 0

    monkeypatch.setattr(cluster, "run_stock", run_stock)
    errors = StringIO()
    call_command("supervision_worker", stderr=errors, stdout=StringIO())
    assert len(ran) == 1
    assert "can't fork" in errors.getvalue()
    assert "may freeze the cluster" in errors.getvalue()
