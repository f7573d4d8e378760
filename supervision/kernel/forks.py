"""Fork: a retry as a new task, which keeps what was recorded before the failure."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.utils.translation import gettext as _

from supervision.conf import settings
from supervision.errors import Refused
from supervision.kernel import countdown, creation, log, sql
from supervision.kernel.models import Erasure, LogEntry, Question, Task
from supervision.kernel.nodes import STEP, Plan
from supervision.kernel.states import LIVE
from supervision.kernel.transition import committing, locked


def fork(
    task_id: UUID | str,
    *,
    by: Any = None,
    note: str = "",
    from_scratch: bool = False,
    from_step: str = "",
    body_version: int | None = None,
    expires_after: timedelta | None = None,
    expected_generation: int | None = None,
    only_new: bool = False,
) -> Task:
    """A retry: a new task from an ended one, with its arguments, owner, subject and concurrency key, linked to it.

    A run of nodes keeps those that succeeded, with their outputs.

    It keeps what was recorded before the failure: steps, waits, decisions, answers, and the signals that still wait to
    be consumed, so that nothing is done, nobody asked and nothing awaited twice; children are started
    again, with the idempotency keys that they had. ``from_step`` keeps only what was
    recorded before that step; ``from_scratch`` nothing, and begins a lineage of its own (new idempotency keys). One
    live fork per source: a second call returns the first one's, or with ``only_new`` is refused. Raises Refused for a
    task that has not ended, or that has no such step.
    """
    with committing("fork"), locked(task_id, expected_generation=expected_generation) as source:
        if source.current_state in LIVE:
            raise Refused("retry", source, _("it has not ended."))
        if source.parent_step.startswith(STEP):
            raise Refused("retry", source, _("it is a node of a run: retry the run, which keeps what succeeded."))
        if from_step and Plan.objects.using(settings.DATABASE).filter(task=source).exists():
            raise Refused("retry", source, _("a run keeps the nodes that succeeded, or nothing if from scratch."))
        if Erasure.objects.using(settings.DATABASE).filter(pk=source.pk).exists():
            raise Refused("retry", source, _("its data has been erased."))
        before = _number_of(source, from_step) if from_step else source.log_length + 1
        # every fork locks its source, so this look is no race
        live = Task.objects.using(settings.DATABASE).live().filter(forked_from=source.pk).first()
        if live is not None and only_new:
            raise Refused("retry", source, _("it is being tried again already, as %(id)s.") % {"id": live.pk})
        if live is not None:
            return live
        task = creation.create(
            source.body,
            source.arguments,
            body_version=body_version or source.body_version,
            queue=source.queue,
            priority=source.priority,
            sensitive=source.sensitive,
            owner=source.owner,
            owner_key=source.owner_ref,
            created_by_key=source.created_by_ref,
            subject=source.subject,
            subject_object=source.subject_object,
            expires_after=expires_after,
            concurrency_key=source.concurrency_key,
            forked_from=source.pk,
            root_id=None if from_scratch else source.root_id or source.pk,
            decisions={} if from_scratch or from_step else source.locked_decisions,
            by=by,
            note=note,
        )
        if not from_scratch:
            _keep_answers(source, task, before)
            _keep_signals(source, task, before)
            _keep_steps(source, task, before)
            countdown.keep(source, task)
        return task


def _number_of(source: Task, step: str) -> int:
    """The number of the first entry of that step."""
    entries = LogEntry.objects.using(settings.DATABASE).filter(
        task_id=source.pk, name=step, event__in=log.REPLAYED, sequence_num__gt=source.replay_from
    )
    number = entries.order_by("sequence_num").values_list("sequence_num", flat=True).first()
    if number is None:
        raise Refused("retry", source, _("it has no step “%(step)s”.") % {"step": step})
    return number


_KEEP_STEPS = """
WITH recorded AS (
    SELECT * FROM supervision_logentry
     WHERE task_id = %(source)s::uuid AND sequence_num > %(after)s AND sequence_num < %(before)s
       AND name <> '' AND event = ANY(%(events)s)
       -- what the clean-up did belongs to the end of the source
       AND sequence_num < COALESCE((SELECT min(sequence_num) FROM supervision_logentry
                                     WHERE task_id = %(source)s::uuid AND sequence_num > %(after)s
                                       AND event = 'unwinding_started'), %(before)s::bigint)
), kept AS (
    SELECT row_number() OVER (ORDER BY sequence_num) AS place, *
      FROM recorded
     WHERE event <> 'step_failed'
       -- a step that failed runs again; one that a person gave up on stays uncertain, and is asked about again
       AND (event <> 'step_intended' OR name NOT IN (SELECT name FROM recorded
                                                      WHERE event = 'step_failed' AND NOT payload ? 'uncertain'))
       AND name NOT IN (SELECT name FROM supervision_logentry
                         WHERE task_id = %(source)s::uuid AND event = 'step_compensated')
), entry AS (
    INSERT INTO supervision_logentry (task_id, sequence_num, event, name, payload, lease, actor_ref)
    SELECT %(fork)s::uuid, %(log_length)s + place, event, name,
           payload || jsonb_build_object('kept_from', sequence_num), 0, %(actor)s
      FROM kept
    RETURNING event, payload
)
UPDATE supervision_task
   SET log_length = log_length + (SELECT count(*) FROM entry), round = %(round)s,
       compensations_outstanding = (SELECT count(*) FROM entry
                                     WHERE event = 'step_completed' AND payload ? 'compensate')
 WHERE id = %(fork)s::uuid
RETURNING log_length
"""
_KEPT = ("step_completed", "step_failed", "step_intended", "signal_consumed", "slept")
"""What a retry may keep: what is settled, and intentions, whose outcome may still be uncertain."""


def _keep_steps(source: Task, fork: Task, before: int) -> None:
    """Copies the recorded steps into the fork's log, but for what failed, what was undone, and what the clean-up did:
    those run again."""
    rows = sql.run(
        _KEEP_STEPS,
        {
            "source": str(source.pk), "fork": str(fork.pk), "after": source.replay_from, "before": before,
            "events": list(_KEPT), "round": source.round, "log_length": fork.log_length,
            "actor": f"fork of {source.pk}",
        },
    )  # fmt: skip
    fork.log_length = rows[0][0]


_KEEP_SIGNALS = """
INSERT INTO supervision_signal (task_id, name, payload, key, sent_at, sent_by_ref, position)
SELECT %(fork)s::uuid, name, payload, key, sent_at, sent_by_ref, position - %(log_length)s - 1
  FROM supervision_signal
 WHERE task_id = %(source)s::uuid AND (consumed_in IS NULL OR consumed_in >= %(before)s)
"""


def _keep_signals(source: Task, fork: Task, before: int) -> None:
    """Those that came and that nothing kept has consumed: the fork must not wait for what has happened. They come
    before all that is sent to the fork itself."""
    sql.run(
        _KEEP_SIGNALS,
        {"source": str(source.pk), "fork": str(fork.pk), "before": before, "log_length": source.log_length},
    )


def _keep_answers(source: Task, fork: Task, before: int) -> None:
    """Those that were given before the kept part ends; verdicts on uncertain steps are asked for again."""
    questions = Question.objects.using(settings.DATABASE)
    asked = LogEntry.objects.using(settings.DATABASE).filter(task_id=source.pk, event="question_asked")
    too_late = {
        key for payload in asked.filter(sequence_num__gte=before).values_list("payload", flat=True)
        for key in payload.get("keys", ())
    }  # fmt: skip
    kept = questions.filter(task_id=source.pk, status=Question.Status.ANSWERED).order_by("pk")
    fresh = [
        Question(task_id=fork.pk, key=old.key, prompt=old.prompt, form=old.form, status=old.status, answer=old.answer,
                 answered_at=old.answered_at, answered_by_id=old.answered_by_id, answered_by_ref=old.answered_by_ref,
                 answered_via=old.answered_via, answerable_by=old.answerable_by, not_by=old.not_by,
                 approvals=old.approvals)
        for old in kept if old.key not in too_late and not old.key.startswith("uncertain:")
    ]  # fmt: skip
    questions.bulk_create(fresh)
