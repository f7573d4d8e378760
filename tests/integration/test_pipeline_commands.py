"""Commands and schedules around pipelines."""

import io
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone
from django_q.models import OrmQ, Schedule
from django_q.scheduler import scheduler

from supervision.engines import Machine, Pipeline, State, Transition, registry
from supervision.engines.machines import machine
from supervision.engines.pipelines.models import Pointer, Visit
from supervision.errors import SupervisionError
from supervision.kernel.models import Task
from supervision.testing import run_until_idle, travel
from supervision.worker import rolling as rollings
from supervision.worker.broker import Broker
from supervision.worker.rolling import Rolling, rolling

pytestmark = pytest.mark.django_db

DAY = timedelta(days=1)


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipeline]:
    monkeypatch.setattr(rollings, "_rolling", {})
    yield Pipeline("training", initial="POLL", terminal={"DONE": "completed"}, states={
        "POLL": State(lambda run: "quick" in run.params, "SAVE", "POLL", False, poll_every=timedelta(hours=30)),
        "SAVE": State(lambda run: None, "DONE", "POLL", True),
    })  # fmt: skip
    registry.unregister("training")


def run(*arguments: Any, **options: Any) -> str:
    out = io.StringIO()
    call_command(*arguments, stdout=out, stderr=out, **options)
    return out.getvalue()


def test_the_diagram_is_written(training: Pipeline, tmp_path: Path) -> None:
    assert run("supervision_diagram", "training", "--format", "mermaid").startswith("flowchart TD")
    assert "digraph" in run("supervision_diagram", "training", "--format", "dot")
    run("supervision_diagram", "training", "--output", str(tmp_path / "training.svg"))
    assert ET.parse(tmp_path / "training.svg").getroot().tag.endswith("svg")


def test_the_diagram_shows_where_subjects_are(training: Pipeline) -> None:
    training.start_all(["x", "y"])
    run_until_idle()
    text = run("supervision_diagram", "training", "--format", "mermaid", "--counts", "--subject", "x")
    assert "2 here" in text
    assert "class n0 current" in text
    with pytest.raises(CommandError, match="nobody"):
        run("supervision_diagram", "training", "--subject", "nobody")
    with pytest.raises(CommandError, match="Known: "):
        run("supervision_diagram", "trianing")


def test_a_pointer_is_moved_by_command(training: Pipeline) -> None:
    task = training.start("x")
    run_until_idle()
    generation = Pointer.objects.get().generation
    said = run("supervision_repoint", "training", "x", "SAVE", "--by", "ann", "--note", "by hand")
    assert said == f"training x is at SAVE (generation {generation + 1}).\n"
    assert Visit.objects.exclude(actor_ref="").get().actor_ref == "ann"
    run_until_idle()
    assert Task.objects.get(pk=task.pk).current_state == "completed"
    with pytest.raises(CommandError, match="has moved"):
        run("supervision_repoint", "training", "x", "SAVE", "--by", "ann", "--expected-generation", str(generation))


def test_pointers_that_the_new_code_would_strand_are_listed(training: Pipeline) -> None:
    training.start("x")
    training.start("y", {"quick": True})
    run_until_idle()
    assert "Every pointer" in run("supervision_check_pipelines")
    registry.unregister("training")
    states = {"WAIT": State(lambda run: None, "DONE", "DONE", True)}
    Pipeline("training", initial="WAIT", terminal={"FINE": "completed", "DONE": "completed"}, states=states)
    out = io.StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("supervision_check_pipelines", stdout=out, stderr=out)
    assert ended.value.code == 1
    assert out.getvalue().startswith("training\tx\tPOLL\n1 pointer is in no known state.")
    registry.unregister("training")
    with pytest.raises(SystemExit):
        call_command("supervision_check_pipelines", "--all", stdout=out, stderr=out)
    assert "training\ty\tDONE\n2 pointers" in out.getvalue()


def test_what_is_due_is_started_and_nothing_else(training: Pipeline) -> None:
    subjects = ["a", "b", "c", "d"]
    rolling(Rolling(training, lambda: subjects, every=DAY, spread_over=timedelta(hours=4)))
    training.start("a")
    training.start("b", {"quick": True})
    run_until_idle()
    assert rollings.start_due("training") == 2
    starts = Task.objects.filter(subject__in=["c", "d"]).order_by("id").values_list("wake_at", flat=True)
    assert starts[1] - starts[0] == timedelta(hours=2)  # type: ignore[operator]
    assert rollings.start_due("training") == 0
    with travel(DAY + timedelta(minutes=1)):
        run_until_idle()
        assert rollings.start_due("training") == 1, "b ended and is due again, the others are still at it"
    assert Task.objects.filter(subject="b").count() == 2
    assert Task.objects.filter(subject="b").latest("id").created_by_ref == "schedule"


def test_an_unknown_schedule_is_told(training: Pipeline) -> None:
    with pytest.raises(SupervisionError, match="No rolling schedule"):
        rollings.start_due("training")


def test_the_rows_of_django_q_follow_the_code(training: Pipeline) -> None:
    assert run("supervision_rolling") == "No rolling schedule is defined.\n"
    rolling(Rolling(training, lambda: [], every=DAY, look_every=timedelta(minutes=15)))
    assert run("supervision_rolling") == "Scheduled: training.\n"
    row = Schedule.objects.get()
    assert (row.func, row.args, row.minutes, row.repeats) == (rollings.FUNCTION, "('training',)", 15, -1)
    Schedule.objects.update(next_run=timezone.now() + DAY)
    later = Schedule.objects.get().next_run
    run("supervision_rolling")
    assert Schedule.objects.get().next_run == later
    Schedule.objects.create(name="somebody else's", func="math.sqrt", args="4")
    rollings._rolling.clear()
    run("supervision_rolling")
    assert [row.name for row in Schedule.objects.all()] == ["somebody else's"]


def test_django_q_hands_out_what_starts_them(training: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_q.scheduler.close_old_django_connections", lambda: None)  # the test's transaction
    rolling(Rolling(training, lambda: ["a"], every=DAY))
    rollings.install()
    scheduler(broker=Broker())
    message = OrmQ.objects.get().task
    assert (message["func"], message["args"]) == (rollings.FUNCTION, ("training",))


@pytest.mark.parametrize("wrong", [{"every": timedelta(0)}, {"every": DAY, "look_every": timedelta(seconds=5)}])
def test_a_schedule_that_cannot_be_is_refused(training: Pipeline, wrong: dict[str, timedelta]) -> None:
    with pytest.raises(ValueError, match="training"):
        Rolling(training, lambda: [], **wrong)


def test_a_machine_is_drawn_by_the_same_command() -> None:
    doors = Machine("command.door", initial="shut", transitions=[Transition("shut", "PUSH", "open")])
    try:
        doors.send("front", "PUSH")
        text = run("supervision_diagram", "command.door", "--format", "mermaid", "--counts", "--subject", "front")
    finally:
        machine.unregister("command.door")
    assert '["open<br/>1 here"]' in text.replace("([", "[").replace("])", "]")
    assert "class n1 current" in text
    with pytest.raises(CommandError, match=r"Known: .*order"):
        run("supervision_diagram", "ordre")
