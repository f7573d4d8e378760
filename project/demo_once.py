"""``demo --once``: one file through the real cluster, with a person's answers from a file."""

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from project.countries import every_country
from project.demo_processes import StopSignals, Workers
from project.demo_screen import Screen, transition
from project.normalising import UNKNOWN, start_on_disk, unclear_names
from supervision.errors import AlreadyAnswered, ConcurrencyKeyHeld, QuestionExpired, QuestionWithdrawn
from supervision.kernel import questions
from supervision.kernel.models import Heartbeat, LogEntry, Question, Task
from supervision.kernel.states import State

ACTOR = "command line"
_LOOK_SECONDS = 0.1
_UNTOLD = ("task_checkpointed",)


def read_answers(path: Path | None) -> dict[str, str]:
    """Name -> code of the file of answers. CommandError: what is wrong with it, in one line."""
    if path is None:
        return {}
    try:
        answers = json.loads(path.read_text("utf-8-sig"))
    except OSError as error:
        raise CommandError(
            _("The answers in “%(path)s” can't be read: %(error)s") % {"path": path, "error": error.strerror}
        ) from None
    except ValueError as error:
        raise CommandError(_("“%(path)s” is no JSON: %(error)s") % {"path": path, "error": error}) from None
    if not isinstance(answers, dict) or not all(isinstance(code, str) for code in answers.values()):
        raise CommandError(
            _('“%(path)s” must be an object {"name as in the CSV": "alpha-2 code", ...}.') % {"path": path}
        )
    known = {each.code for each in every_country()} | {UNKNOWN}
    wrong = [f"“{name}”: “{code}”" for name, code in answers.items() if code.strip().upper() not in known]
    if wrong:
        raise CommandError(
            _("“%(path)s” has what is no alpha-2 code: %(wrong)s.") % {"path": path, "wrong": ", ".join(wrong)}
        )
    return {name.strip(): code.strip().upper() for name, code in answers.items()}


def start_or_continue(path: Path, *, column: str, output: Path | None) -> tuple[Task, bool]:
    """The task for the file and whether it is new: one that was left half-way is gone on with.

    CommandError if another file's task is writing that output.
    """
    try:
        return start_on_disk(path, column=column, output=output, by=ACTOR), True
    except ConcurrencyKeyHeld as held:
        task: Task = held.task
        if task.arguments["path"] != str(path.expanduser().resolve()) or task.arguments["column"] != column:
            raise CommandError(
                _("Task %(id)s is writing this output, from “%(path)s”: cancel it in admin, or name another output.")
                % {"id": task.pk, "path": task.arguments["path"]}
            ) from None
        return task, False


class Once:
    """Follows one task to its end and answers for the person."""

    def __init__(self, task: Task, answers: Mapping[str, str], screen: Screen, signals: StopSignals) -> None:
        self._id = task.pk
        self._answers = answers
        self._screen = screen
        self._signals = signals
        self._told = task.log_length - 1
        self._names: dict[str, str] = {}

    def follow(self, workers: Workers) -> Any:
        """The result of the completed task. CommandError for every other end, and for what nobody here can answer."""
        try:
            while not (task := self._look()).is_terminal:
                if task.current_state == State.PARKED:
                    self._see_to(task)
                if self._signals.count:
                    raise CommandError(
                        _("Stopped. The task %(id)s stays as it is: the same command goes on with it.")
                        % {"id": task.pk}
                    )
                workers.check()
                time.sleep(_LOOK_SECONDS)
        finally:
            self._screen.clear()
        if task.current_state != State.COMPLETED:
            raise CommandError(task.failure or f"{task.get_current_state_display()}: {task.watchdog_stop_reason}")
        return task.result

    def _look(self) -> Task:
        """The task as it is, with what has happened to it told."""
        task = Task.objects.get(pk=self._id)
        self._names = unclear_names(task.locked_decisions)
        entries = LogEntry.objects.filter(
            task_id=self._id, sequence_num__gt=self._told, sequence_num__lte=task.log_length
        )
        for entry in entries.exclude(event__in=_UNTOLD).order_by("sequence_num"):
            self._screen.say(transition(entry, self._names))
        self._told = task.log_length
        beat = Heartbeat.objects.filter(task_id=self._id).first()
        if beat is not None and beat.progress_total and task.current_state == State.RUNNING:
            self._screen.show(beat.progress_done or 0, beat.progress_total, beat.progress_text)
        return task

    def _see_to(self, task: Task) -> None:
        """Answers what the parked task asks. CommandError if it waits for somebody else."""
        if task.is_held or task.awaits_operator:
            raise CommandError(
                _("The task %(id)s is held (%(reason)s): resume it in admin, then run the same command again.")
                % {"id": task.pk, "reason": task.watchdog_stop_reason}
            )
        pending = {question.key: question for question in Question.objects.filter(task_id=task.pk).pending()}
        asked = {name: pending[key] for key, name in self._names.items() if key in pending}
        unanswered = []
        for name, question in asked.items():
            if name in self._answers:
                self._answer(question, self._answers[name])
            else:
                unanswered.append(f"“{name}”")
        if unanswered:
            self._look()
            raise CommandError(_unanswered(unanswered))

    def _answer(self, question: Question, code: str) -> None:
        with suppress(AlreadyAnswered, QuestionExpired, QuestionWithdrawn):  # meanwhile, in admin: the next look tells
            questions.answer(question.pk, code, by=ACTOR, via="command")


def _unanswered(names: list[str]) -> str:
    return ngettext(
        "%(n)d name is not in the answers: %(names)s. The task stays parked: answer in admin (manage.py demo), or add "
        "it to the answers and run the same command again.",
        "%(n)d names are not in the answers: %(names)s. The task stays parked: answer in admin (manage.py demo), or "
        "add them to the answers and run the same command again.",
        len(names),
    ) % {"n": len(names), "names": ", ".join(names)}
