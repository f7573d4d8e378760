"""The how-to's DAGs run as they stand there."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from supervision.engines import Pipeline, Run, State, registry, start
from supervision.engines.bodies import body
from supervision.kernel.models import Task
from supervision.testing import run_until_idle, travel

pytestmark = pytest.mark.django_db

HOW_TO = Path(__file__).resolve().parents[2] / "docs" / "dags.md"


def test_the_dags_of_the_how_to_run() -> None:
    before = set(registry.known_versions())
    first, begun, whole, others = re.findall(r"```python\n(.*?)```", HOW_TO.read_text(), re.DOTALL)
    names: dict[str, Any] = {"read_rows": lambda day: [{"amount": 3}, {"amount": 0}, {"amount": 4}]}

    def train(run: Run) -> Any:
        return True, None, {"seen": run.params["rows"]}

    try:
        Pipeline("training", initial="TRAIN", terminal={"DONE": "completed", "BAD": "failed"},
                 states={"TRAIN": State(train, "DONE", "BAD", True)})  # fmt: skip
        body("other_report")(lambda task, day: {"outputs": day})
        for source in (first, whole, others, begun):
            exec(compile(source, str(HOW_TO), "exec"), names)
        month = start("month_end", {"days": ["sunday", "tuesday"]})
        week = names["weekly"].start("friday")
        run_until_idle()
        with travel(timedelta(minutes=6)):
            run_until_idle()
    finally:
        for name in set(registry.known_versions()) - before:
            registry.unregister(name)
    run = Task.objects.get(pk=names["task"].pk)
    assert run.result is not None, run.failure
    assert run.result["outputs"] == {
        "publish": "monday: 14", "train": {"state": "DONE", "params": {"rows": 2, "seen": 2}},
        "others": {"outputs": "monday"},
    }  # fmt: skip
    assert Task.objects.get(pk=month.pk).result == ["sunday: 14", "tuesday: 14"]
    assert Task.objects.get(pk=week.pk).current_state == "completed"
