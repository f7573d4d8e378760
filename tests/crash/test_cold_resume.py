"""Any process, given a database and a task's id, continues exactly where the last one stopped."""

from pathlib import Path
from typing import Any

from supervision.engines import start
from supervision.kernel import questions
from supervision.kernel.models import LogEntry, Question
from tests.integration import rows


def test_a_parked_body_is_continued_by_a_fresh_interpreter_in_another_directory(child: Any, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    pk = start("crash.story").pk
    assert child("drive", str(pk), cwd=first).said() is True
    assert rows.fresh(pk).watchdog_stop_reason == "awaiting_user_answer:colour"
    questions.answer(Question.objects.get(task_id=pk).pk, "blue", by="ann")
    assert child("drive", str(pk), cwd=second).said() is True
    task = rows.fresh(pk)
    assert (task.current_state, task.result) == ("completed", {"rows": 2, "painted": "blue"})
    assert rows.events(pk).count("question_asked") == 1
    done = LogEntry.objects.filter(task_id=pk, event="task_checkpointed").order_by("sequence_num")
    assert list(done.values_list("name", flat=True)) == ["row 0", "row 1", "painted"]
    rows.assert_sound(pk)


def test_a_task_of_a_body_that_the_fresh_interpreter_does_not_know_waits_for_one_that_does(child: Any) -> None:
    pk = rows.due()
    assert child("drive", str(pk)).said() is True
    task = rows.fresh(pk)
    assert (task.current_state, task.watchdog_stop_reason) == ("parked", f"unknown_body:{rows.BODY}")
