"""Everything composes: bodies, pipelines and DAGs start each other, and plain code starts them in its transaction."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import transaction

from supervision.engines import Context, Dag, Event, Machine, Pipeline, Run, State, Transition, start
from supervision.engines import retry as retry_task
from supervision.engines.bodies import body
from supervision.engines.pipelines.models import Pointer
from supervision.kernel import lifecycle, signals_in
from supervision.kernel.models import Task
from supervision.kernel.nodes import Node
from supervision.testing import answer, run_until_idle, travel
from tests.integration.machine_work import forgetting

pytestmark = pytest.mark.django_db

_NAMES = itertools.count()


@pytest.fixture(autouse=True)
def _registry(own_bodies: None) -> None: ...


def named(what: str) -> str:
    return f"{what}.{next(_NAMES)}"


@pytest.fixture
def doubled() -> Dag:
    """Of one argument ``n``: its output is twice that."""
    dag = Dag(named("dag"))

    @dag.node()
    def double(task: Context, *, n: int) -> int:
        return 2 * n

    @dag.node(after=[double])
    def show(task: Context, *, double: int) -> int:
        return double

    return dag


@pytest.fixture
def training() -> Pipeline:
    """A pipeline that waits for a signal, as for a job elsewhere."""

    def submit(run: Run) -> Any:
        return True, None, {"job": f"job of {run.subject}", "rows": run.params.get("rows")}

    def poll(run: Run) -> bool:
        signal = run.wait_for_signal("done")
        return bool(signal and signal.payload)

    return Pipeline(named("training"), initial="SUBMIT", terminal={"DONE": "completed", "BROKEN": "failed"}, states={
        "SUBMIT": State(submit, "POLL", "BROKEN", True),
        "POLL": State(poll, "DONE", "BROKEN", True),
    })  # fmt: skip


def result(task: Task) -> Any:
    task.refresh_from_db()
    assert task.current_state == "completed", task.failure
    return task.result


def test_a_body_runs_a_dag_as_a_step(doubled: Dag) -> None:
    @body(name := named("body"))
    def work(task: Context) -> Any:
        outputs = [task.run_child(doubled.name, {"n": n}, key=n)["outputs"]["show"] for n in (1, 2)]
        return task.step("sum", sum, outputs)

    task = start(name)
    run_until_idle()
    assert result(task) == 6
    assert Task.objects.filter(parent=task, body=doubled.name).count() == 2


def test_a_pipelines_transition_starts_a_dag_and_yields_until_it_is_done(doubled: Dag) -> None:
    def begin(run: Run) -> Any:
        task = doubled.start({"n": 21}, idempotency_key=run.idempotency_key)
        return True, None, {"report": str(task.pk)}

    def read(run: Run) -> Any:
        return True, None, {"shown": Task.objects.get(pk=run.params["report"]).result["outputs"]["show"]}  # type: ignore[index]

    def is_over(run: Run) -> bool:
        return Task.objects.get(pk=run.params["report"]).is_terminal

    nightly = Pipeline(named("pipeline"), initial="BEGIN", terminal={"DONE": "completed", "FAILED": "failed"}, states={
        "BEGIN": State(begin, "WAIT", "FAILED", True),
        "WAIT": State(read, "DONE", "FAILED", False, ready=is_over, poll_every=timedelta(minutes=1)),
    })  # fmt: skip
    task = nightly.start("monday")
    run_until_idle()
    task.refresh_from_db()
    assert task.watchdog_stop_reason == "yielded:WAIT"
    with travel(timedelta(minutes=2)):
        run_until_idle()
    assert result(task)["params"]["shown"] == 42


def test_a_transition_may_run_a_dag_as_a_child_too(doubled: Dag) -> None:
    def report(run: Run) -> Any:
        return True, None, {"shown": run.run_child(doubled.name, {"n": 3})["outputs"]["show"]}

    pipeline = Pipeline(named("pipeline"), initial="REPORT", terminal={"DONE": "completed", "FAILED": "failed"},
                        states={"REPORT": State(report, "DONE", "FAILED", True)})  # fmt: skip
    task = pipeline.start("x")
    run_until_idle()
    assert result(task)["params"] == {"shown": 6}


def test_a_node_is_a_whole_pipeline_run_and_another_a_whole_dag(training: Pipeline, doubled: Dag) -> None:
    dag = Dag(named("dag"))

    @dag.node()
    def clean(task: Context, *, customer: str) -> int:
        return 7

    train = dag.task(
        "train", training, after=[clean], arguments=lambda clean: {"rows": clean}, subject=lambda customer: customer
    )
    double = dag.task("double", doubled, after=[clean], arguments=lambda clean: {"n": clean})

    @dag.node(after=[train, double])
    def report(task: Context, *, train: Any, double: Any) -> Any:
        return [train["params"], double["outputs"]["show"]]

    task = dag.start({"customer": "customer 7"})
    run_until_idle()
    pointer = Pointer.objects.get(pipeline=training.name)
    assert (pointer.subject, pointer.state) == ("customer 7", "POLL")
    assert pointer.run is not None
    assert pointer.run.parent_id == task.pk
    assert training.start("customer 7").pk == pointer.run_id, "it is the subject's live run"
    signals_in.send(str(pointer.run_id), "done", True)
    run_until_idle()
    assert result(task)["outputs"] == {"report": [{"job": "job of customer 7", "rows": 7}, 14]}


def test_a_node_whose_subject_has_a_live_run_fails_and_says_so(training: Pipeline) -> None:
    dag = Dag(named("dag"))
    dag.task("train", training, subject="customer 7")
    live = training.start("customer 7")
    run_until_idle()
    task = dag.start()
    run_until_idle()
    task.refresh_from_db()
    assert task.current_state == "failed"
    assert f"already holds the concurrency key “pipeline:{training.name}:customer 7”" in task.failure
    lifecycle.cancel(live.pk, by="alice")
    run_until_idle()
    fork = retry_task(task.pk, by="alice")
    run_until_idle()
    assert Node.objects.get(run=fork).state == "running"


def test_a_body_runs_a_pipeline_as_a_child(training: Pipeline) -> None:
    @body(name := named("body"))
    def work(task: Context) -> Any:
        return task.run_child(training.name, {"rows": 1}, subject="customer 8")["state"]

    task = start(name)
    run_until_idle()
    pointer = Pointer.objects.get(pipeline=training.name)
    signals_in.send(str(pointer.run_id), "done", True)
    run_until_idle()
    assert result(task) == "DONE"


def test_a_question_in_a_pipeline_in_a_node_parks_that_branch_alone(doubled: Dag) -> None:
    def decide(run: Run) -> bool:
        return bool(run.ask("go", "Go?", kind="yes_no"))

    asking = Pipeline(named("asking"), initial="DECIDE", terminal={"YES": "completed", "NO": "completed"},
                      states={"DECIDE": State(decide, "YES", "NO", True)})  # fmt: skip
    dag = Dag(named("dag"))
    dag.task("decide", asking, subject="s")
    dag.task("double", doubled, arguments={"n": 4})
    task = dag.start()
    run_until_idle()
    assert dict(Node.objects.filter(run=task).values_list("name", "state")) == {
        "decide": "running", "double": "succeeded",
    }  # fmt: skip
    answer(Task.objects.get(body=asking.name), {"DECIDE.1/go": "yes"})
    run_until_idle()
    assert result(task)["outputs"]["decide"]["state"] == "YES"


def test_a_dag_is_started_in_the_transaction_of_plain_code_or_not_at_all(doubled: Dag) -> None:
    def order(*, fails: bool) -> Task:
        with transaction.atomic():
            Group.objects.create(name=f"order {fails}")
            task = doubled.start({"n": 1})
            if fails:
                raise RuntimeError
        return task

    with pytest.raises(RuntimeError):
        order(fails=True)
    assert not Task.objects.exists()
    task = order(fails=False)
    run_until_idle()
    assert result(task)["outputs"] == {"show": 2}


def test_a_machines_action_starts_a_dag_in_its_transaction(doubled: Dag) -> None:
    def begin(subject: str, event: Event) -> None:
        doubled.start({"n": event.payload["n"]}, subject=subject)
        if event.payload["n"] < 0:
            raise ValueError("less than nothing")

    with forgetting():
        orders = Machine(
            named("machine"), initial="new", transitions=[Transition("new", "PAID", "reported", action=begin)]
        )
        with pytest.raises(ValueError, match="less than nothing"):
            orders.send("order 1", "PAID", payload={"n": -1})
        assert not Task.objects.filter(body=doubled.name).exists()
        orders.send("order 1", "PAID", payload={"n": 5})
    run_until_idle()
    assert result(Task.objects.get(body=doubled.name, subject="order 1"))["outputs"] == {"show": 10}


def test_a_cancelled_run_takes_runs_in_its_nodes_along(training: Pipeline, doubled: Dag) -> None:
    inner = Dag(named("dag"))
    inner.task("train", training, subject="s")
    outer = Dag(named("dag"))
    outer.task("inner", inner)
    task = outer.start()
    run_until_idle()
    grandchild = Task.objects.get(body=training.name)
    for verb, is_held in ((lifecycle.pause, True), (lifecycle.resume, False)):
        verb(task.pk, by="alice")
        grandchild.refresh_from_db()
        assert grandchild.is_held is is_held
    lifecycle.cancel(task.pk, by="alice")
    run_until_idle()
    assert set(Task.objects.values_list("current_state", flat=True)) == {"cancelled"}
