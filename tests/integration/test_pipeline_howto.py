"""The how-to's first pipeline runs as it stands there."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from supervision.engines import registry
from supervision.kernel.models import Task
from supervision.testing import run_until_idle, travel

pytestmark = pytest.mark.django_db

HOW_TO = Path(__file__).resolve().parents[2] / "docs" / "pipelines.md"


def test_the_first_pipeline_of_the_how_to_runs() -> None:
    source = re.findall(r"```python\n(.*?)```", HOW_TO.read_text(), re.DOTALL)[0]
    answers = iter(["running", None, "done"])
    keys: list[str] = []

    def submit(subject: str, key: str) -> str:
        keys.append(key)
        return f"job {len(keys)}"

    names: dict[str, Any] = {
        "gpu": SimpleNamespace(submit=submit, status=lambda job: next(answers)), "download": keys.append,
    }  # fmt: skip
    exec(compile(source, str(HOW_TO), "exec"), names)
    try:
        task = names["training"].start("customer 7")
        run_until_idle()
        assert Task.objects.get().watchdog_stop_reason == "yielded:POLL"
        for _ in range(2):
            with travel(names["timedelta"](minutes=4)):
                run_until_idle()
                Task.objects.filter(current_state="parked").update(wake_at=task.created_at)
    finally:
        registry.unregister("training")
    assert Task.objects.get().result == {"state": "DONE", "params": {"job": "job 2"}}
    assert keys == [f"{task.pk}:SUBMIT.1", f"{task.pk}:SUBMIT.2", "job 2"]
