"""Starting tasks by their body's name: what surfaces and code call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import models

from supervision.conf import settings
from supervision.engines import registry
from supervision.kernel import creation, forks
from supervision.kernel.models import Task


def start(
    body: str,
    arguments: Mapping[str, Any] | None = None,
    *,
    owner: Any = None,
    owner_key: str = "",
    subject: str = "",
    subject_object: models.Model | None = None,
    queue: str = "",
    priority: int | None = None,
    start_at: datetime | None = None,
    expires_at: datetime | None = None,
    expires_after: timedelta | None = None,
    idempotency_key: str = "",
    concurrency_key: str = "",
    by: Any = None,
    note: str = "",
) -> Task:
    """A new pending task of the registered ``body``, with what its registration says where nothing else is given.

    ``owner`` is a user, or an organisation (a row of any model); ``owner_key`` one whose row is not at hand.

    In the caller's transaction, if there is one: rolled back with it, and taken by a worker after its commit. Raises
    UnknownBody, InvalidArguments, NotStorable, TooLarge, ConcurrencyKeyHeld, AlreadyPruned; see ``creation.create``.
    """
    known = registry.get(body)
    return creation.create(
        known.name,
        known.check_arguments(arguments or {}),
        body_version=known.version,
        queue=queue or known.queue,
        priority=known.priority if priority is None else priority,
        sensitive=known.sensitive,
        owner=owner,
        owner_key=owner_key,
        subject=subject,
        subject_object=subject_object,
        start_at=start_at,
        expires_at=expires_at,
        expires_after=expires_after or known.expires_after,
        idempotency_key=idempotency_key,
        concurrency_key=concurrency_key,
        by=by,
        note=note,
    )


def start_many(
    body: str,
    arguments: Sequence[Mapping[str, Any]],
    *,
    subjects: Sequence[str] = (),
    idempotency_keys: Sequence[str] = (),
    start_after: Sequence[timedelta] = (),
    owner: Any = None,
    start_at: datetime | None = None,
    by: Any = None,
) -> list[UUID]:
    """A task of ``body`` for each of ``arguments``, thousands a second, in one transaction; their ids.

    See ``creation.create_many``: ``subjects``, ``idempotency_keys`` and ``start_after`` are one for each. Tasks whose
    idempotency key is taken are left as they are.
    """
    known = registry.get(body)
    return creation.create_many(
        known.name,
        [known.check_arguments(each) for each in arguments],
        subjects=subjects,
        idempotency_keys=idempotency_keys,
        start_after=start_after,
        body_version=known.version,
        queue=known.queue,
        priority=known.priority,
        sensitive=known.sensitive,
        owner=owner,
        start_at=start_at,
        expires_after=known.expires_after,
        by=by,
    )


def retry(
    task_id: UUID | str,
    *,
    by: Any = None,
    note: str = "",
    from_scratch: bool = False,
    from_step: str = "",
    expected_generation: int | None = None,
    only_new: bool = False,
) -> Task:
    """Forks the ended task on the body's current version; see ``forks.fork``. Raises UnknownBody if it is gone.

    Of a body whose engine keeps no steps (a pipeline's run) the retry is from scratch."""
    source = Task.objects.using(settings.DATABASE).filter(pk=task_id).only("body").first()
    known = registry.get(source.body) if source is not None else None
    return forks.fork(
        task_id,
        by=by,
        note=note,
        from_scratch=from_scratch or (known is not None and not known.engine.keeps_steps),
        from_step=from_step,
        body_version=known.version if known else None,
        expires_after=known.expires_after if known else None,
        expected_generation=expected_generation,
        only_new=only_new,
    )
