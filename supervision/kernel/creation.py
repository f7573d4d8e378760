"""Create and fork: the only ways a task comes to be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

from django.contrib.contenttypes.models import ContentType
from django.db import models
from django.utils.translation import gettext as _

from supervision.conf import settings
from supervision.errors import AlreadyPruned, ConcurrencyKeyHeld, NotStorable, Refused
from supervision.kernel import log, sql, storable
from supervision.kernel.actors import actor_ref, owner_ref, person_ref
from supervision.kernel.models import Erasure, LogEntry, Question, Task, Tombstone
from supervision.kernel.states import LIVE
from supervision.kernel.transition import CHANNEL, announce, committing, locked, refuse_isolation

_BATCH = 5_000

# One statement: the rows, their first entries and the notification. What conflicts with a unique constraint isn't
# inserted. What the rows don't share comes in arrays.
_CREATE = f"""
WITH task AS (
    INSERT INTO supervision_task (
        body, body_version, version_at_start, replay_from, round, queue, priority, arguments, sensitive,
        owner_id, owner_ref, created_by_ref,
        subject, subject_type_id, subject_pk, current_state, watchdog_stop_reason, generation, lease, log_length,
        locked_decisions, failure, wake_at, expires_at, recoveries, compensations_outstanding, ending, ending_reason,
        idempotency_key, concurrency_key, parent_id, parent_step, forked_from, root_id, children_awaited, is_awaited
    )
    SELECT %(body)s, %(body_version)s, %(body_version)s, 0, %(round)s, %(queue)s, %(priority)s, each.arguments,
           %(sensitive)s::jsonb, %(owner_id)s, %(owner_ref)s,
           COALESCE((SELECT created_by_ref FROM supervision_task WHERE id = %(parent_id)s::uuid), %(created_by_ref)s),
           each.subject, %(subject_type_id)s::int, %(subject_pk)s, 'pending', '', 1, 0, 1, %(decisions)s::jsonb, '',
           COALESCE(%(start_at)s::timestamptz, supervision_now_v1()) + each.start_after,
           COALESCE(%(expires_at)s::timestamptz,
                    COALESCE(%(start_at)s::timestamptz, supervision_now_v1()) + each.start_after
                    + %(expires_after)s::interval),
           0, 0, '', '', each.idempotency_key, %(concurrency_key)s, %(parent_id)s::uuid, each.parent_step,
           %(forked_from)s::uuid, each.root_id, 0, true
      FROM unnest(%(arguments)s::text[]::jsonb[], %(subjects)s::text[], %(idempotency_keys)s::text[],
                  %(parent_steps)s::text[], %(start_afters)s::interval[], %(root_ids)s::uuid[]) WITH ORDINALITY
           AS each(arguments, subject, idempotency_key, parent_step, start_after, root_id, place)
     ORDER BY each.place
    ON CONFLICT DO NOTHING
    RETURNING id
), entry AS (
    INSERT INTO supervision_logentry (task_id, sequence_num, event, name, payload, lease, actor_ref)
    SELECT id, 1, 'task_created', '', %(payload)s::jsonb, 0, %(actor)s FROM task
)
SELECT array_agg(id), current_setting('transaction_isolation'), pg_notify('{CHANNEL}', '') FROM task
"""  # noqa: S608 - the channel is a constant


def create(
    body: str,
    arguments: Mapping[str, Any] | None = None,
    *,
    body_version: int = 1,
    queue: str = "default",
    priority: int = 5,
    sensitive: Sequence[str] = (),
    owner: Any = None,
    owner_key: str = "",
    created_by_key: str = "",
    subject: str = "",
    subject_object: models.Model | None = None,
    start_at: datetime | None = None,
    expires_at: datetime | None = None,
    expires_after: timedelta | None = None,
    idempotency_key: str = "",
    concurrency_key: str = "",
    parent_id: UUID | None = None,
    parent_step: str = "",
    forked_from: UUID | None = None,
    root_id: UUID | None = None,
    decisions: Mapping[str, Any] | None = None,
    by: Any = None,
    note: str = "",
) -> Task:
    """A new pending task, due at ``start_at`` (default: now), in the caller's transaction if there is one.

    Most callers want ``supervision.engines.start``, which also knows the body. ``expires_after`` counts from the start,
    on the database's clock. With an ``idempotency_key``, unique per owner and body, a second call returns the first
    call's task, whatever has become of it; AlreadyPruned if it is gone. A ``concurrency_key`` admits one live task:
    ConcurrencyKeyHeld otherwise. NotStorable and TooLarge name the argument that can't be kept.
    """
    if not 0 <= priority <= 9:  # here: the database's error would show the whole row
        raise NotStorable("priority", _("it must be from 0 to 9"))
    if body_version < 0:
        raise NotStorable("body_version", _("it must be 0 or more"))
    parameters = {
        "body": storable.name(body, place="body"),
        "body_version": body_version,
        "queue": storable.name(queue, place="queue", longest=100),
        "priority": _priority(priority),
        "arguments": [storable.encode(dict(arguments or {}), place="arguments", limit="MAX_ARGUMENTS_BYTES")],
        "sensitive": storable.encode(list(sensitive), place="sensitive", limit="MAX_PAYLOAD_BYTES"),
        "owner_id": getattr(owner, "pk", None),
        "owner_ref": owner_key or owner_ref(owner),
        "subjects": [storable.text(subject or (str(subject_object) if subject_object else ""), 200)[:200]],
        "subject_type_id": ContentType.objects.get_for_model(subject_object).pk if subject_object else None,
        "subject_pk": str(subject_object.pk) if subject_object else "",
        "decisions": storable.encode(dict(decisions or {}), place="decisions", limit="MAX_DECISIONS_BYTES"),
        "start_at": start_at,
        "expires_at": expires_at,
        "expires_after": expires_after,
        "idempotency_keys": [storable.name(idempotency_key, place="idempotency_key") if idempotency_key else ""],
        "concurrency_key": storable.name(concurrency_key, place="concurrency_key") if concurrency_key else "",
        "parent_id": parent_id,
        "parent_steps": [parent_step],
        "start_afters": [timedelta(0)],
        "forked_from": forked_from,
        "root_ids": [root_id],
        "round": 0,
        "payload": storable.encode({"note": note} if note else {}, place="note", limit="MAX_PAYLOAD_BYTES"),
        "actor": actor_ref(by if by is not None else owner),
        "created_by_ref": created_by_key or person_ref(by if by is not None else owner),
    }
    with committing("create"):
        task, is_new = _insert_or_find(parameters)
        if is_new:
            announce(task, "task_created")
    return task


def create_many(
    body: str,
    arguments: Sequence[Mapping[str, Any]],
    *,
    subjects: Sequence[str] = (),
    idempotency_keys: Sequence[str] = (),
    start_after: Sequence[timedelta] = (),
    parent: Task | None = None,
    parent_steps: Sequence[str] = (),
    body_version: int = 1,
    queue: str = "default",
    priority: int = 5,
    sensitive: Sequence[str] = (),
    owner: Any = None,
    start_at: datetime | None = None,
    expires_after: timedelta | None = None,
    by: Any = None,
) -> list[UUID]:
    """A task for each of ``arguments``, in batches of one statement, in one transaction; the new ids.

    ``subjects``, ``idempotency_keys`` and ``start_after`` (delays), where given, are as many as ``arguments``. Tasks
    whose idempotency key is taken are left as they are, and their ids are not returned. Raises as ``create`` does; an
    error names the number of the arguments.
    """
    shared: dict[str, Any] = {
        "body": storable.name(body, place="body"), "body_version": body_version,
        "queue": storable.name(queue, place="queue", longest=100), "priority": _priority(priority),
        "sensitive": storable.encode(list(sensitive), place="sensitive", limit="MAX_PAYLOAD_BYTES"),
        "owner_id": parent.owner_id if parent else getattr(owner, "pk", None),
        "owner_ref": parent.owner_ref if parent else owner_ref(owner),
        "created_by_ref": person_ref(by if by is not None else owner),
        "subject_type_id": None, "subject_pk": "", "decisions": "{}", "start_at": start_at, "expires_at": None,
        "expires_after": expires_after, "concurrency_key": "", "parent_id": parent.pk if parent else None,
        "forked_from": None, "round": 0, "payload": "{}",
        "actor": f"task {parent.pk}" if parent else actor_ref(by if by is not None else owner),
    }  # fmt: skip
    count = len(arguments)
    columns: dict[str, list[Any]] = {
        "arguments": [
            storable.encode(dict(each), place=f"arguments[{at}]", limit="MAX_ARGUMENTS_BYTES")
            for at, each in enumerate(arguments)
        ],
        "subjects": [storable.text(each, 200)[:200] for each in subjects] or [""] * count,
        "idempotency_keys": list(idempotency_keys) or [""] * count,
        "parent_steps": list(parent_steps) or [""] * count,
        "start_afters": list(start_after) or [timedelta(0)] * count,
        # the same in each fork of the parent, so that its steps keep their idempotency keys
        "root_ids": [uuid5(parent.root_id or parent.pk, step) for step in parent_steps] if parent else [None] * count,
    }
    for name, values in columns.items():
        if len(values) != count:
            raise ValueError(f"{name} has {len(values)} values for {count} tasks")
    for at, each in enumerate(columns["idempotency_keys"]):
        if each:
            storable.name(each, place=f"idempotency_keys[{at}]")
    created: list[UUID] = []
    with committing("create"):
        for at in range(0, count, _BATCH):
            batch = {name: values[at : at + _BATCH] for name, values in columns.items()}
            created += _insert({**shared, **batch})
            _refuse_pruned({**shared, **batch})
    return created


def _priority(priority: int) -> int:
    if not 0 <= priority <= 9:
        raise NotStorable("priority", _("it must be from 0 to 9, not %(n)s") % {"n": priority})
    return priority


def _insert(parameters: Mapping[str, Any]) -> list[UUID]:
    ids, isolation, _notified = sql.run(_CREATE, parameters)[0]
    if ids:
        refuse_isolation(isolation)
    return list(ids or ())


def _insert_or_find(parameters: Mapping[str, Any]) -> tuple[Task, bool]:
    """The inserted row and True, or the row that holds one of its keys and False."""
    tasks = Task.objects.using(settings.DATABASE)
    while True:
        ids = _insert(parameters)
        if ids:
            _refuse_pruned(parameters)
            return tasks.get(pk=ids[0]), True
        # The winner of each key has committed: a conflict waits for it. Its row is looked for in fresh statements, and
        # a concurrency key may have been freed since, so look again rather than fail.
        if parameters["idempotency_keys"] != [""]:
            found = tasks.filter(
                owner_ref=parameters["owner_ref"],
                body=parameters["body"],
                idempotency_key=parameters["idempotency_keys"][0],
            ).first()
            if found is not None:
                return found, False
        if parameters["forked_from"]:
            found = tasks.live().filter(forked_from=parameters["forked_from"]).first()
            if found is not None:
                return found, False
        if parameters["parent_id"]:
            found = tasks.filter(parent_id=parameters["parent_id"], parent_step=parameters["parent_steps"][0]).first()
            if found is not None:
                return found, False
        if parameters["concurrency_key"]:
            found = tasks.live().filter(concurrency_key=parameters["concurrency_key"]).first()
            if found is not None:
                raise ConcurrencyKeyHeld(parameters["concurrency_key"], found)


def _refuse_pruned(parameters: Mapping[str, Any]) -> None:
    """Looked for after the insert: a prune that committed before it has left its tombstone, and one that commits later
    finds our row."""
    keys = [key for key in parameters["idempotency_keys"] if key]
    if not keys:
        return
    pruned = Tombstone.objects.using(settings.DATABASE).filter(
        owner_ref=parameters["owner_ref"], body=parameters["body"], idempotency_key__in=keys
    )
    key = pruned.values_list("idempotency_key", flat=True).first()
    if key is not None:
        raise AlreadyPruned(key)


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
) -> Task:
    """A retry: a new task from an ended one, with its arguments, owner, subject and concurrency key, linked to it.

    It keeps what was recorded before the failure: steps, waits, decisions, answers, and the signals that still wait to
    be consumed, so that nothing is done, nobody asked and nothing awaited twice; children are started
    again, with the idempotency keys that they had. ``from_step`` keeps only what was
    recorded before that step; ``from_scratch`` nothing, and begins a lineage of its own (new idempotency keys). One
    live fork per source: a second call returns the first one's. Raises Refused for a task that has not ended, or that
    has no such step.
    """
    with committing("fork"), locked(task_id, expected_generation=expected_generation) as source:
        if source.current_state in LIVE:
            raise Refused("retry", source, _("it has not ended."))
        if Erasure.objects.using(settings.DATABASE).filter(pk=source.pk).exists():
            raise Refused("retry", source, _("its data has been erased."))
        before = _number_of(source, from_step) if from_step else source.log_length + 1
        # every fork locks its source, so this look is no race
        live = Task.objects.using(settings.DATABASE).live().filter(forked_from=source.pk).first()
        if live is not None:
            return live
        task = create(
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
