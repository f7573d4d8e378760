"""Create and fork: the only ways a task comes to be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.contrib.contenttypes.models import ContentType
from django.db import models
from django.utils.translation import gettext as _

from supervision.conf import settings
from supervision.errors import AlreadyPruned, ConcurrencyKeyHeld, Refused
from supervision.kernel import sql, storable
from supervision.kernel.actors import actor_ref, owner_ref
from supervision.kernel.models import Question, Task, Tombstone
from supervision.kernel.states import LIVE
from supervision.kernel.transition import CHANNEL, announce, committing, locked

# One statement: the row, its first entry and the notification. A conflict with any unique constraint inserts nothing.
_CREATE = f"""
WITH task AS (
    INSERT INTO supervision_task (
        body, body_version, queue, priority, arguments, sensitive, owner_id, owner_ref,
        subject, subject_type_id, subject_pk, current_state, watchdog_stop_reason, generation, lease, log_length,
        locked_decisions, failure, wake_at, expires_at, recoveries, compensations_outstanding, ending, ending_reason,
        idempotency_key, concurrency_key, parent_id, parent_step, forked_from, root_id
    ) VALUES (
        %(body)s, %(body_version)s, %(queue)s, %(priority)s, %(arguments)s::jsonb, %(sensitive)s::jsonb,
        %(owner_id)s, %(owner_ref)s, %(subject)s, %(subject_type_id)s, %(subject_pk)s,
        'pending', '', 1, 0, 1, %(decisions)s::jsonb, '',
        COALESCE(%(start_at)s::timestamptz, supervision_now_v1()),
        COALESCE(%(expires_at)s::timestamptz,
                 COALESCE(%(start_at)s::timestamptz, supervision_now_v1()) + %(expires_after)s::interval),
        0, 0, '', '', %(idempotency_key)s, %(concurrency_key)s, %(parent_id)s::uuid, %(parent_step)s,
        %(forked_from)s::uuid, %(root_id)s::uuid
    )
    ON CONFLICT DO NOTHING
    RETURNING id, wake_at
), entry AS (
    INSERT INTO supervision_logentry (task_id, sequence_num, event, name, payload, lease, actor_ref)
    SELECT id, 1, 'task_created', '', %(payload)s::jsonb, 0, %(actor)s FROM task
)
SELECT id, pg_notify('{CHANNEL}', '') FROM task
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
    parameters = {
        "body": storable.name(body, place="body"),
        "body_version": body_version,
        "queue": storable.name(queue, place="queue", longest=100),
        "priority": priority,
        "arguments": storable.encode(dict(arguments or {}), place="arguments", limit="MAX_ARGUMENTS_BYTES"),
        "sensitive": storable.encode(list(sensitive), place="sensitive", limit="MAX_PAYLOAD_BYTES"),
        "owner_id": getattr(owner, "pk", None),
        "owner_ref": owner_key or owner_ref(owner),
        "subject": storable.text(subject or (str(subject_object) if subject_object else ""), 200)[:200],
        "subject_type_id": ContentType.objects.get_for_model(subject_object).pk if subject_object else None,
        "subject_pk": str(subject_object.pk) if subject_object else "",
        "decisions": storable.encode(dict(decisions or {}), place="decisions", limit="MAX_DECISIONS_BYTES"),
        "start_at": start_at,
        "expires_at": expires_at,
        "expires_after": expires_after,
        "idempotency_key": storable.name(idempotency_key, place="idempotency_key") if idempotency_key else "",
        "concurrency_key": storable.name(concurrency_key, place="concurrency_key") if concurrency_key else "",
        "parent_id": parent_id,
        "parent_step": parent_step,
        "forked_from": forked_from,
        "root_id": root_id,
        "payload": storable.encode({"note": note} if note else {}, place="note", limit="MAX_PAYLOAD_BYTES"),
        "actor": actor_ref(by if by is not None else owner),
    }
    with committing("create"):
        task, is_new = _insert_or_find(parameters)
        if is_new:
            announce(task, "task_created")
    return task


def _insert_or_find(parameters: Mapping[str, Any]) -> tuple[Task, bool]:
    """The inserted row and True, or the row that holds one of its keys and False."""
    tasks = Task.objects.using(settings.DATABASE)
    while True:
        rows = sql.run(_CREATE, parameters)
        if rows:
            _refuse_pruned(parameters)
            return tasks.get(pk=rows[0][0]), True
        # The winner of each key has committed: a conflict waits for it. Its row is looked for in fresh statements, and
        # a concurrency key may have been freed since, so look again rather than fail.
        if parameters["idempotency_key"]:
            found = tasks.filter(
                owner_ref=parameters["owner_ref"],
                body=parameters["body"],
                idempotency_key=parameters["idempotency_key"],
            ).first()
            if found is not None:
                return found, False
        if parameters["forked_from"]:
            found = tasks.live().filter(forked_from=parameters["forked_from"]).first()
            if found is not None:
                return found, False
        if parameters["parent_id"]:
            found = tasks.filter(parent_id=parameters["parent_id"], parent_step=parameters["parent_step"]).first()
            if found is not None:
                return found, False
        if parameters["concurrency_key"]:
            found = tasks.live().filter(concurrency_key=parameters["concurrency_key"]).first()
            if found is not None:
                raise ConcurrencyKeyHeld(parameters["concurrency_key"], found)


def _refuse_pruned(parameters: Mapping[str, Any]) -> None:
    """Looked for after the insert: a prune that committed before it has left its tombstone, and one that commits later
    finds our row."""
    key = parameters["idempotency_key"]
    if key and (
        Tombstone.objects.using(settings.DATABASE)
        .filter(owner_ref=parameters["owner_ref"], body=parameters["body"], idempotency_key=key)
        .exists()
    ):
        raise AlreadyPruned(key)


def fork(
    task_id: UUID | str,
    *,
    by: Any = None,
    note: str = "",
    from_scratch: bool = False,
    body_version: int | None = None,
    expires_after: timedelta | None = None,
    expected_generation: int | None = None,
) -> Task:
    """A retry: a new task from an ended one, with its arguments, owner, subject and keys, linked to it.

    It keeps the decisions and the answers, so that nobody is asked twice, unless ``from_scratch``. One live fork per
    source: a second call returns the first one's. Raises Refused for a task that has not ended.
    """
    with committing("fork"), locked(task_id, expected_generation=expected_generation) as source:
        if source.current_state in LIVE:
            raise Refused("retry", source, _("it has not ended."))
        task = create(
            source.body,
            source.arguments,
            body_version=body_version or source.body_version,
            queue=source.queue,
            priority=source.priority,
            sensitive=source.sensitive,
            owner=source.owner,
            owner_key=source.owner_ref,
            subject=source.subject,
            subject_object=source.subject_object,
            expires_after=expires_after,
            concurrency_key=source.concurrency_key,
            forked_from=source.pk,
            root_id=source.root_id or source.pk,
            decisions={} if from_scratch else source.locked_decisions,
            by=by,
            note=note,
        )
        if not from_scratch:
            _keep_answers(source, task)
        return task


def _keep_answers(source: Task, fork: Task) -> None:
    questions = Question.objects.using(settings.DATABASE)
    kept = list(questions.filter(task_id=source.pk, status=Question.Status.ANSWERED).order_by("pk"))
    known = set(questions.filter(task_id=fork.pk).values_list("key", flat=True))
    fresh = [
        Question(task_id=fork.pk, key=old.key, prompt=old.prompt, form=old.form, status=old.status, answer=old.answer,
                 answered_at=old.answered_at, answered_by_id=old.answered_by_id, answered_by_ref=old.answered_by_ref,
                 answered_via=old.answered_via)
        for old in kept if old.key not in known
    ]  # fmt: skip
    questions.bulk_create(fresh)
