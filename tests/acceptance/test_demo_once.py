"""``manage.py demo --once``: one file through a real cluster, whatever is killed meanwhile."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from django.conf import settings

from project.normalising import question_key
from supervision.kernel import questions
from supervision.kernel.models import LogEntry, Question, Task
from tests.countries_csv import EXAMPLES, assert_each_name_once, big_file, expected_output
from tests.processes import ROOT, Cluster, StartCluster, database_url, wait_for

pytestmark = pytest.mark.cluster

QUICK: dict[str, object] = {"LEASE_SECONDS": 2, "BEAT_SECONDS": 0.5}


def run_once(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs the command to its end."""
    return subprocess.run(
        [sys.executable, "-W", "error", "manage.py", "demo", "--once", *map(str, arguments)],
        cwd=ROOT,
        env={
            **os.environ,
            "DATABASE_URL": database_url(),
            "DJANGO_SECRET_KEY": settings.SECRET_KEY,
            "DJANGO_SETTINGS_MODULE": "tests.cluster_settings",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def reason_in(run: subprocess.CompletedProcess[str]) -> str:
    """The one line in which a failed run says why."""
    assert run.returncode == 1, run
    (line,) = run.stderr.splitlines()
    assert line.startswith("CommandError: ")
    return line.removeprefix("CommandError: ")


def test_left_alone_it_writes_the_codes_and_tells_what_happened(transactional_db: None, tmp_path: Path) -> None:
    data = (EXAMPLES / "customers.csv").read_bytes()
    answers = json.loads((EXAMPLES / "answers.json").read_text())
    (tmp_path / "in.csv").write_bytes(data)

    run = run_once(tmp_path / "in.csv", "--answers", EXAMPLES / "answers.json", "--output", tmp_path / "out.csv")

    assert run.returncode == 0, run
    assert (tmp_path / "out.csv").read_bytes() == expected_output(data, answers)
    assert_each_name_once(Task.objects.get(), data, answers)
    told = [re.sub(r"^[\d:.]+  ", "", line) for line in run.stdout.splitlines()[1:]]
    assert told[0] == "pending: created"
    assert told[1].startswith("running: taken by ")
    assert told[2] == "parked: awaiting_user_answers:11"
    assert sorted(told[3:14]) == sorted(f"answered: “{name}” is {code}" for name, code in answers.items())
    assert told[14].startswith("running: taken by ")
    assert told[15:] == [
        "completed",
        "40 rows, 37 different names: 26 decided by rule, 11 by a person.",
        "Most frequent: KR 2, NL 2, CD 2, GN 2, DE 1, FR 1, CI 1, PE 1, GB 1, CA 1.",
        f"Written: {tmp_path / 'out.csv'}",
    ]
    assert "\r" not in run.stdout  # no progress bar where nobody watches


def test_a_terminal_gets_a_progress_bar(transactional_db: None, tmp_path: Path) -> None:
    answers = big_file(tmp_path / "in.csv", 400_000, unclear=1)
    (tmp_path / "answers.json").write_text(json.dumps(answers))
    command = [sys.executable, "manage.py", "demo", "--once", str(tmp_path / "in.csv")]
    pid, terminal = os.forkpty()
    if pid == 0:
        os.environ["DATABASE_URL"] = database_url()
        os.chdir(ROOT)
        os.execv(sys.executable, [*command, "--answers", str(tmp_path / "answers.json")])
    shown = b""
    while chunk := _read_terminal(terminal):
        shown += chunk
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, shown.decode()
    assert re.search(r"\r\x1b\[K\[#+\.*\] +\d+%  (Reading|Writing|Written): ", shown.decode())


def _read_terminal(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # the other end is closed
        return b""


def while_reading(task: Task) -> bool:
    """Some names are decided, and none is asked yet."""
    return task.current_state == "running" and LogEntry.objects.filter(task_id=task.pk, name="read").count() >= 20


def while_writing(task: Task) -> bool:
    return LogEntry.objects.filter(task_id=task.pk, name="write").exists()


def kill_workers(demo: Cluster) -> None:
    """Kills every process of the cluster, at once as far as that goes; the demo's own main process lives."""
    for pid in demo.alive() - {demo.pid}:
        os.kill(pid, signal.SIGSTOP)
    for pid in demo.alive() - {demo.pid}:
        os.kill(pid, signal.SIGKILL)


def kill_all(demo: Cluster) -> None:
    os.killpg(demo.pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize(("kill", "is_there"), [(kill_workers, while_reading), (kill_all, while_writing)])
def test_killed_in_the_middle_and_started_again_it_writes_the_same(
    start_cluster: StartCluster, tmp_path: Path, is_there: Callable[[Task], bool], kill: Callable[[Cluster], None]
) -> None:
    source, output = tmp_path / "in.csv", tmp_path / "out.csv"
    answers = big_file(source, 60_000, unclear=20)
    (tmp_path / "answers.json").write_text(json.dumps(answers))
    command = ["--once", str(source), "--answers", str(tmp_path / "answers.json"), "--output", str(output)]

    first = start_cluster(*command, command="demo", supervision=QUICK)
    wait_for(lambda: any(map(is_there, Task.objects.all())), "the work is in the middle", 30)
    kill(first)
    status = first.wait_until_gone()
    if kill is kill_workers:
        assert status == 1
        assert "The workers have ended unexpectedly (SIGKILL)" in first.output()
    assert not output.exists()

    again = start_cluster(*command, command="demo", supervision=QUICK)
    assert again.wait_until_gone(30) == 0, again.output()

    task = Task.objects.get()
    assert f"Going on with task {task.pk}" in again.output()
    assert (task.current_state, LogEntry.objects.filter(event="task_taken").count() > 2) == ("completed", True)
    assert output.read_bytes() == expected_output(source.read_bytes(), answers)
    assert_each_name_once(task, source.read_bytes(), answers)
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix != ".log") == [
        "answers.json", "in.csv", "out.csv"
    ]  # fmt: skip


def test_what_the_answers_leave_open_is_named_and_answered_later(transactional_db: None, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("country\nKorea\nHoland\nGuinea\n")
    (tmp_path / "answers.json").write_text('{"Korea": "kr"}')
    run = run_once(tmp_path / "in.csv", "--answers", tmp_path / "answers.json")
    assert "2 names are not in the answers: “Holand”, “Guinea”." in reason_in(run)
    task = Task.objects.get()
    assert task.watchdog_stop_reason == "awaiting_user_answers:3"
    assert Question.objects.get(key=question_key("Korea")).answer == "KR"

    for question in Question.objects.filter(task=task).pending():
        questions.answer(question.pk, "NL" if question.key == question_key("Holand") else "GN", by="somebody in admin")
    run = run_once(tmp_path / "in.csv")
    assert run.returncode == 0, run
    assert (tmp_path / "in-with-country-codes.csv").read_text() == (
        "country,country_code\nKorea,KR\nHoland,NL\nGuinea,GN\n"
    )
    assert Task.objects.get() == task


def test_a_failed_task_is_a_line_on_stderr(transactional_db: None, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("name,land\nAnn,Peru\n")
    run = run_once(tmp_path / "in.csv", "--output", tmp_path / "out.csv")
    assert reason_in(run) == "There is no column “country”: choose one of “name”, “land”."
    assert "failed" in run.stdout
    assert os.listdir(tmp_path) == ["in.csv"]
    assert run_once(tmp_path / "in.csv", "--column", "land").returncode == 0


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        (None, "can't be read: No such file or directory"),
        ("{", "is no JSON: "),
        ('["KR"]', 'must be an object {"name as in the CSV": "alpha-2 code", ...}.'),
        ('{"Korea": "KR", "Congo": "XX", "Guinea": ""}', "has what is no alpha-2 code: “Congo”: “XX”, “Guinea”: “”."),
    ],
)
def test_bad_answers_are_refused_before_anything_starts(
    transactional_db: None, tmp_path: Path, answers: str | None, reason: str
) -> None:
    path = tmp_path / "answers.json"
    if answers is not None:
        path.write_text(answers)
    assert reason in reason_in(run_once(EXAMPLES / "customers.csv", "--answers", path))
    assert not Task.objects.exists()


@pytest.mark.parametrize("group", [False, True], ids=["itself", "group"])
def test_stopped_it_leaves_the_task_and_no_process(start_cluster: StartCluster, tmp_path: Path, group: bool) -> None:
    big_file(tmp_path / "in.csv", 200_000, unclear=1)
    demo = start_cluster("--once", str(tmp_path / "in.csv"), command="demo")
    wait_for(lambda: LogEntry.objects.filter(name="read").exists(), "the work has begun", 30)
    assert demo.stop(group=group, seconds=5) == 1
    task = Task.objects.get()
    assert f"Stopped. The task {task.pk} stays as it is: the same command goes on with it." in demo.output()
    assert (task.current_state, task.watchdog_stop_reason) == ("parked", "worker_stopping")


def test_an_output_that_another_task_writes_is_left_to_it(transactional_db: None, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("country\nKorea\n")
    (tmp_path / "b.csv").write_text("country\nPeru\n")
    out = ("--output", tmp_path / "out.csv")
    assert "1 name is not in the answers: “Korea”." in reason_in(run_once(tmp_path / "a.csv", *out))
    reason = reason_in(run_once(tmp_path / "b.csv", *out))
    assert reason.startswith(f"Task {Task.objects.get().pk} is writing this output, from “{tmp_path / 'a.csv'}”")
