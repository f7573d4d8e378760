"""The control room on the command line: list, show, answer, signal, pause, resume, cancel, retry, tail."""

from __future__ import annotations

import getpass
import json
import sys
import time
from argparse import ArgumentParser
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError
from django.utils.translation import gettext as _

from supervision import wording
from supervision.conf import settings
from supervision.engines import retry
from supervision.errors import SupervisionError
from supervision.kernel import lifecycle, log, masking, questions, signals_in
from supervision.kernel.models import LogEntry, Question, Task
from supervision.kernel.states import State

VERBS = {"pause": lifecycle.pause, "resume": lifecycle.resume, "cancel": lifecycle.cancel}
_LOOK_AGAIN_SECONDS = 0.5


class Command(BaseCommand):
    help = "Lists, shows and follows tasks, answers their questions, and pauses, resumes, cancels or retries them."

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        listing = verbs.add_parser("list", help=_("tasks, newest first"))
        listing.add_argument("--state", choices=State.values)
        listing.add_argument("--body", help=_("only tasks of this body"))
        listing.add_argument("--queue")
        listing.add_argument("--needs-answer", action="store_true", help=_("only those with a pending question"))
        listing.add_argument("--dead", action="store_true", help=_("only dead letters"))
        listing.add_argument("--limit", type=int, default=20)
        show = verbs.add_parser("show", help=_("one task: what it does, its questions, the end of its log"))
        answer = verbs.add_parser("answer", help=_("answers a pending question"))
        signal = verbs.add_parser("signal", help=_("tells the task something from the outside world"))
        tail = verbs.add_parser("tail", help=_("follows a task's log until it ends"))
        changing = [verbs.add_parser(name, help=text) for name, text in (
            ("pause", _("at the next step; an idle task is held")), ("resume", _("lifts a pause, or says go on")),
            ("cancel", _("lets it clean up, then ends it")), ("retry", _("a new task that keeps what was done")),
        )]  # fmt: skip
        for one in (show, answer, signal, tail, *changing):
            one.add_argument("task", type=UUID, help=_("the task's id"))
        answer.add_argument("key", help=_("the question's key, as show prints it"))
        answer.add_argument("value", help=_("the answer, as one would type it into the form"))
        for one in changing:
            one.add_argument("--generation", type=int, help=_("refuse if the task has changed since this generation"))
        changing[-1].add_argument("--from-step", default="", help=_("keep only what was recorded before this step"))
        changing[-1].add_argument("--from-scratch", action="store_true", help=_("keep nothing"))
        signal.add_argument("name", help=_("the signal's name"))
        signal.add_argument("payload", nargs="?", default="null", help=_("as JSON; default: null"))
        signal.add_argument("--key", default="", help=_("the same key twice is one signal"))
        for one in (answer, signal, *changing):
            one.add_argument("--by", default=getpass.getuser(), help=_("who asks; default: the system's user"))
            one.add_argument("--note", default="", help=_("why; goes into the task's log"))
        for one in (listing, show, answer, signal, tail, *changing):
            one.add_argument("--json", action="store_true", dest="as_json", help=_("for programs"))

    def handle(self, *args: Any, **options: Any) -> None:
        verb = options["verb"]
        try:
            getattr(self, f"_{verb}", self._change)(**options)
        except SupervisionError as refusal:
            raise CommandError(str(refusal)) from None
        except KeyboardInterrupt:
            sys.exit(130)

    # --- reading

    def _list(self, *, as_json: bool, limit: int, **options: Any) -> None:
        tasks = Task.objects.using(settings.DATABASE).with_clock()
        for column in ("body", "queue"):
            if options[column]:
                tasks = tasks.filter(**{column: options[column]})
        if options["state"]:
            tasks = tasks.filter(current_state=options["state"])
        if options["needs_answer"]:
            tasks = tasks.awaiting_answer()
        if options["dead"]:
            tasks = tasks.dead_lettered()
        rows = list(tasks.order_by("-pk")[:limit])
        if as_json:
            self._print_json([_facts(task) for task in rows])
        elif not rows:
            self.stdout.write(_("No such tasks. Start one with supervision.engines.start, or in the admin."))
        for task in () if as_json else rows:
            words = wording.situation(task).label
            why = wording.reason(_masked(task, task.watchdog_stop_reason))
            age = wording.moment(task.created_at, task.db_now)
            self.stdout.write(f"{task.pk}  {words:<16} {task.body:<28} {age:<12} {why}".rstrip())

    def _show(self, *, task: UUID, as_json: bool, **options: Any) -> None:
        row = _find(task)
        pending = list(Question.objects.using(settings.DATABASE).filter(task_id=task).pending())
        page = log.page(task, size=20)
        if as_json:
            self._print_json(
                {
                    **_facts(row),
                    "arguments": row.masked_arguments,
                    "decisions": _masked(row, row.locked_decisions),
                    "result": _masked(row, row.result),
                    "questions": [_question(row, each) for each in pending],
                    "log": {
                        "entries": [_entry(entry) for entry in page.entries],
                        "returned_count": page.returned_count,
                        "total_count": page.total_count,
                        "withheld_count": page.withheld_count,
                        "truncated": page.truncated,
                    },
                }
            )
            return
        self.stdout.write(self.style.MIGRATE_HEADING(f"{row.body}  {row.pk}"))
        lines = {
            _("State"): f"{wording.situation(row).label}, {wording.moment(row.state_changed_at, row.db_now)}",
            _("Why"): wording.reason(_masked(row, row.watchdog_stop_reason)),
            _("Failure"): _masked(row, row.failure),
            _("Next"): wording.next_step(row, pending=len(pending)),
            _("Subject"): row.subject,
            _("Owner"): row.owner_ref,
            _("Generation"): str(row.generation),
            _("Arguments"): json.dumps(row.masked_arguments, ensure_ascii=False),
            _("Result"): "" if row.result is None else json.dumps(_masked(row, row.result), ensure_ascii=False),
        }
        for label, text in lines.items():
            if text:
                self.stdout.write(f"  {label:<12} {text}")
        for each in pending:
            self.stdout.write(self.style.WARNING(f"  ? {each.key}: {_masked(row, each.prompt)}"))
            for value, label in each.form.get("choices", ()):
                self.stdout.write(f"      {value}  {label}")
        if page.truncated:
            self.stdout.write(_("  … %(n)s older entries") % {"n": page.withheld_count})
        self._print_entries(page.entries)

    def _tail(self, *, task: UUID, as_json: bool, **options: Any) -> None:
        """Prints what is there, then what comes, until the task has ended."""
        seen = 0
        while True:
            is_over = _find(task).is_terminal
            page = log.page(task, size=1_000)
            self._print_entries([entry for entry in page.entries if entry.sequence_num > seen], as_json=as_json)
            seen = page.total_count
            if is_over:
                return
            time.sleep(_LOOK_AGAIN_SECONDS)

    # --- acting

    def _answer(self, *, task: UUID, key: str, value: str, by: str, note: str, as_json: bool, **options: Any) -> None:
        question = Question.objects.using(settings.DATABASE).filter(task_id=task, key=key).first()
        if question is None:
            raise CommandError(_("The task has no question “%(key)s”; `show` lists what is pending.") % {"key": key})
        answered = questions.answer(question.pk, value, by=by, via="command line", note=note)
        self._report(answered.task_id, _("answered"), as_json)

    def _signal(self, *, task: UUID, name: str, payload: str, key: str, by: str, as_json: bool, **options: Any) -> None:
        try:
            value = json.loads(payload)
        except ValueError as error:
            raise CommandError(_("The payload is no JSON: %(error)s") % {"error": error}) from None
        signals_in.send(task, name, value, key=key, by=by)
        self._report(task, _("told"), as_json)

    def _retry(self, *, task: UUID, by: str, note: str, as_json: bool, **options: Any) -> None:
        fork = retry(task, by=by, note=note, from_step=options["from_step"], from_scratch=options["from_scratch"],
                     expected_generation=options["generation"])  # fmt: skip
        self._report(fork.pk, _("started as a new task"), as_json)

    def _change(self, *, verb: str, task: UUID, by: str, note: str, as_json: bool, **options: Any) -> None:
        changed = VERBS[verb](task, by=by, note=note, expected_generation=options["generation"])
        is_asked = changed.current_state == State.RUNNING and verb == "pause"
        done = _("pausing after the current step") if is_asked else wording.situation(changed).label
        self._report(task, done, as_json)

    def _report(self, task: UUID, done: str, as_json: bool) -> None:
        if as_json:
            self._print_json(_facts(_find(task)))
        else:
            self.stdout.write(f"{task}  {done}")

    # --- printing

    def _print_json(self, value: Any) -> None:
        self.stdout.write(json.dumps(value, ensure_ascii=False, default=str))

    def _print_entries(self, entries: Iterable[LogEntry], *, as_json: bool = False) -> None:
        for entry in entries:
            if as_json:
                self._print_json(_entry(entry))
                continue
            told = {key: value for key, value in entry.payload.items() if key != "traceback"}
            about = json.dumps(told, ensure_ascii=False, default=str) if told else ""
            at = f"{entry.created_at:%Y-%m-%d %H:%M:%S}"
            self.stdout.write(
                f"{entry.sequence_num:>6}  {at}  {wording.event(entry.event):<18} {entry.name} {about[:160]}"
            )


def _find(task_id: UUID) -> Task:
    row = Task.objects.using(settings.DATABASE).with_clock().filter(pk=task_id).first()
    if row is None:
        raise CommandError(_("There is no task %(id)s.") % {"id": task_id})
    return row


def _masked(task: Task, value: Any) -> Any:
    return masking.mask_values(value, task.secrets)


def _facts(task: Task) -> dict[str, Any]:
    return {
        "id": task.pk, "body": task.body, "state": task.current_state,
        "reason": _masked(task, task.watchdog_stop_reason), "generation": task.generation, "queue": task.queue,
        "priority": task.priority, "subject": task.subject, "owner": task.owner_ref, "created_at": task.created_at,
        "wake_at": task.wake_at, "expires_at": task.expires_at, "finished_at": task.finished_at,
        "pause_requested_at": task.pause_requested_at, "ending": task.ending,
        "failure": _masked(task, task.failure), "forked_from": task.forked_from,
    }  # fmt: skip


def _question(task: Task, question: Question) -> dict[str, Any]:
    return {"key": question.key, "prompt": _masked(task, question.prompt), "form": question.form,
            "asked_at": question.asked_at, "expires_at": question.expires_at}  # fmt: skip


def _entry(entry: LogEntry) -> dict[str, Any]:
    return {"number": entry.sequence_num, "at": entry.created_at, "event": entry.event, "name": entry.name,
            "payload": entry.payload, "lease": entry.lease, "by": entry.actor_ref}  # fmt: skip
