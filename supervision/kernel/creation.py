"""Create: how a task comes to be, alone, as a child, or by the thousand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

from django.contrib.contenttypes.models import ContentType
from django.db import models
from django.utils.translation import gettext as _

from supervision.conf import settings
from supervision.errors import AlreadyPruned, ConcurrencyKeyHeld, NotStorable
from supervision.kernel import sql, storable
from supervision.kernel.actors import actor_ref, owner_ref, person_ref, user_id
from supervision.kernel.models import Task, Tombstone
from supervision.kernel.transition import CHANNEL, announce, committing, refuse_isolation

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
        "owner_id": user_id(owner),
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
    concurrency_key: str = "",
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
        "owner_id": parent.owner_id if parent else user_id(owner),
        "owner_ref": parent.owner_ref if parent else owner_ref(owner),
        "created_by_ref": person_ref(by if by is not None else owner),
        "subject_type_id": None, "subject_pk": "", "decisions": "{}", "start_at": start_at, "expires_at": None,
        "expires_after": expires_after, "concurrency_key": concurrency_key, "parent_id": parent.pk if parent else None,
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
