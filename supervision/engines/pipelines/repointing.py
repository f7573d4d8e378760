"""Re-pointing: a person puts a subject's pointer into another state. Recorded like a visit, with who and why."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext as _

from supervision.conf import settings
from supervision.engines import registry, starting
from supervision.engines.pipelines import moves, pipeline
from supervision.engines.pipelines.definition import Table
from supervision.engines.pipelines.errors import PointerMoved, PointerNotFound, UnknownState
from supervision.engines.pipelines.models import Pointer, Visit
from supervision.engines.pipelines.outcome import REPOINTED
from supervision.engines.pipelines.run import key_of
from supervision.errors import ConcurrencyKeyHeld, Refused
from supervision.kernel import branches, storable
from supervision.kernel.actors import actor_ref
from supervision.kernel.clock import Now
from supervision.kernel.ends import close_questions
from supervision.kernel.models import Task
from supervision.kernel.states import Reason, State
from supervision.kernel.transition import committing, locked, write


def repoint(
    name: str, subject: str, state: str, *, by: Any, note: str = "", expected_generation: int | None = None
) -> Pointer:
    """Puts the pointer of (pipeline ``name``, subject) into ``state``, any of the table or a terminal one.

    The count of that state begins anew. A live run that waits goes on from there, now; a paused or a delayed one when
    its time comes; its open questions are withdrawn. If the last run has ended a new one starts there, but not for a
    terminal state, which just tidies up. Returns the fresh pointer.

    ``expected_generation`` is the pointer's, as the person saw it: PointerMoved on a mismatch. Raises UnknownPipeline,
    UnknownState, PointerNotFound, Busy; Refused while a worker drives the run (pause it first), or while it is being
    ended or overdue. Nothing is written then. May stand in a caller's transaction.
    """
    table = pipeline.get(name)
    if state not in table:
        raise UnknownState(name, state, [*table.states, *table.terminal])
    with committing("repoint"):
        live = Task.objects.using(settings.DATABASE).live().filter(concurrency_key=key_of(name, subject)).first()
        if live is None:
            return _ended(table, subject, state, by, note, expected_generation)
        with locked(live.pk) as task:
            # it may have ended while we waited for its lock
            if task.is_terminal:
                return _ended(table, subject, state, by, note, expected_generation)
            return _live(table, task, state, by, note, expected_generation)


def _live(table: Table, task: Task, state: str, by: Any, note: str, expected: int | None) -> Pointer:
    """Of the locked live task. It isn't driven, so nobody else moves the pointer."""
    if task.current_state == State.RUNNING:
        raise Refused("re-point", task, _("it is being driven right now. Pause it first."))
    if task.ending:
        raise Refused("re-point", task, _("it is being ended (%(reason)s).") % {"reason": task.ending_reason})
    if task.is_overdue:
        raise Refused("re-point", task, _("its time ran out."))
    pointer = _locked_pointer(table, task.subject, expected)
    columns: dict[str, Any] = {}
    if task.current_state == State.PARKED:
        close_questions(task)
        columns = {"wake_at": task.db_now, "watchdog_stop_reason": Reason.YIELDED.of(state)}
    left, number = pointer.state, pointer.number
    payload = {"from": left, "to": state, **({"note": note} if note else {})}
    write(task, event="repointed", name=state, bump=True, actor=actor_ref(by), payload=payload, **columns)
    if pointer.run_id != task.pk:
        _begin(table, task, state)
    else:
        _move(table, pointer, task, state)
    return _recorded(pointer, task, left, number, state, by, note)


def _ended(table: Table, subject: str, state: str, by: Any, note: str, expected: int | None) -> Pointer:
    """No run is live: a new one starts in a state of the table; a terminal one only tidies up."""
    pointer = _locked_pointer(table, subject, expected)
    left, number = pointer.state, pointer.number
    if state in table.terminal:
        since = pointer.since if left == state else Now()
        Pointer.objects.using(settings.DATABASE).filter(pk=pointer.pk).update(
            state=state, generation=pointer.generation + 1, since=since
        )
        return _recorded(pointer, None, left, number, state, by, note)
    task = _started(table, pointer, by, note)
    with locked(task.pk) as fresh:
        payload = {"from": left, "to": state, **({"note": note} if note else {})}
        write(fresh, event="repointed", name=state, actor=actor_ref(by), payload=payload)
        _begin(table, fresh, state)
        return _recorded(pointer, fresh, left, number, state, by, note)


def _started(table: Table, pointer: Pointer, by: Any, note: str) -> Task:
    """A new run with what the last one had gathered; it is the subject's, and its owner's, as the last one was."""
    last = Task.objects.using(settings.DATABASE).filter(pk__in=[pointer.run_id]).first()
    known = registry.get(table.name)
    try:
        return starting.start(
            known.name, pointer.params, owner=last.owner if last else None, owner_key=last.owner_ref if last else "",
            subject=pointer.subject, subject_object=last.subject_object if last else None,
            queue=last.queue if last else "", priority=last.priority if last else None,
            concurrency_key=key_of(table.name, pointer.subject), by=by, note=note,
        )  # fmt: skip
    except ConcurrencyKeyHeld as held:
        raise Refused("re-point", held.task, _("a new run has just started.")) from None


def _locked_pointer(table: Table, subject: str, expected: int | None) -> Pointer:
    """The fresh row, locked after its task."""
    pointers = Pointer.objects.using(settings.DATABASE).filter(pipeline=table.name, subject=subject)
    list(pointers.select_for_update(no_key=True).values_list("pk"))
    pointer = pointers.with_clock().first()
    if pointer is None:
        raise PointerNotFound(table.name, subject)
    if expected is not None and pointer.generation != expected:
        raise PointerMoved(pointer, expected)
    return pointer


def _begin(table: Table, task: Task, state: str) -> None:
    """Turns the pointer to a run that has not been driven yet."""
    params = storable.encode(task.arguments, place="params", limit="MAX_DECISIONS_BYTES")
    branches.run(task.pk, moves.begin(table, task.subject, state, params))


def _move(table: Table, pointer: Pointer, task: Task, state: str) -> None:
    """The numbers of visits go on, so that names of steps never repeat in a run; what the cap counts begins anew."""
    counts, forgiven = dict(pointer.counts), dict(pointer.forgiven)
    if state in table.states:
        forgiven[state] = counts.get(state, 0)
        counts[state] = counts.get(state, 0) + 1
    Pointer.objects.using(settings.DATABASE).filter(pk=pointer.pk).update(
        state=state, generation=pointer.generation + 1, counts=counts, forgiven=forgiven, since=Now(),
        entered_at=Now(), entered_in=task.log_length,
    )  # fmt: skip


def _recorded(pointer: Pointer, task: Task | None, left: str, number: int, state: str, by: Any, note: str) -> Pointer:
    """The visit of ``left`` that the person cut short. The pointer is locked, so its count is right."""
    began = pointer.entered_at
    pointer.refresh_from_db()
    run = pointer.run_id if task is None else task.pk
    assert run is not None  # noqa: S101 - a pointer is made by its first run
    visit = Visit(
        pointer=pointer, sequence_num=pointer.visit_count + 1, run_id=run, logged_in=task.log_length if task else None,
        state=left, number=number, outcome=REPOINTED, next_state=state, yielded=False, entered_at=began,
        actor_ref=actor_ref(by), note=storable.text(note, 2000),
    )  # fmt: skip
    visit.save(force_insert=True)
    pointer.visit_count += 1
    pointer.save(update_fields=["visit_count"])
    return pointer
