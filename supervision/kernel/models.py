"""The kernel's rows and how to find them. Reading is free; only the verbs of this package write."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Self

from django.conf import settings as django_settings
from django.contrib.contenttypes.fields import GenericForeignKey
from django.contrib.contenttypes.models import ContentType
from django.db import models
from django.db.models import CheckConstraint, Func, Index, Q, UniqueConstraint
from django.db.models.functions import Collate, Upper
from django.utils.translation import gettext_lazy as _

from supervision.conf import settings
from supervision.kernel import links, masking
from supervision.kernel.clock import Now
from supervision.kernel.states import DEAD_LETTER_REASONS, LIVE, OPERATOR_REASONS, TERMINAL, Reason, State, first_word

_LIVE = Q(current_state__in=sorted(LIVE))
_HAS_REASON = ~Q(watchdog_stop_reason="")


def new_id() -> Func:
    return Func(function="supervision_id_v1", output_field=models.UUIDField())


def database_now() -> Func:
    return Func(function="supervision_now_v1", output_field=models.DateTimeField())


class FirstWord(Func):
    """The first word of a reason in SQL, exactly as the index has it; ``states.first_word`` in Python."""

    template = "split_part(%(expressions)s, ':', 1)"
    arity = 1
    output_field = models.TextField()


class TaskQuerySet(models.QuerySet["Task"]):
    """Questions that operators ask of tasks. None of them locks."""

    def with_clock(self) -> Self:
        """Each row with ``db_now``, the database's time of the very statement, and ``is_overdue`` as judged by it."""
        is_overdue = Q(expires_at__isnull=False) & Q(expires_at__lte=Now())
        return self.annotate(
            db_now=Now(), is_overdue=models.ExpressionWrapper(is_overdue, output_field=models.BooleanField())
        )

    def live(self) -> Self:
        return self.filter(_LIVE)

    def parked(self) -> Self:
        return self.filter(current_state=State.PARKED)

    def awaiting_answer(self) -> Self:
        """Tasks with at least one pending question."""
        return self.filter(
            models.Exists(Question.objects.filter(task=models.OuterRef("pk"), status=Question.Status.PENDING))
        )

    def due(self) -> Self:
        """What a worker may take now: woken, not held, not on offer."""
        return self.filter(wake_at__lte=Now()).filter(
            Q(pause_requested_at=None) | ~Q(ending=""), Q(offered_until=None) | Q(offered_until__lte=Now())
        )

    def overdue(self) -> Self:
        """Live tasks past ``expires_at`` that nobody is ending yet."""
        return self.live().filter(expires_at__lte=Now(), ending="")

    def orphaned(self) -> Self:
        """Running tasks whose worker has not beaten for the lease time, by the database's clock."""
        alive = Heartbeat.objects.filter(
            task=models.OuterRef("pk"),
            lease=models.OuterRef("lease"),
            beat_at__gt=Now() - timedelta(seconds=settings.LEASE_SECONDS),
        )
        return self.filter(~models.Exists(alive), current_state=State.RUNNING)

    def dead_lettered(self) -> Self:
        """Failed for lack of retries, visits or recoveries, or in compensation: what a person must look at."""
        return self.for_reasons(*sorted(DEAD_LETTER_REASONS)).filter(current_state=State.FAILED)

    def for_reasons(self, *words: str) -> Self:
        """Whose reason begins with one of these words; by index."""
        return self.alias(_word=FirstWord("watchdog_stop_reason")).filter(_HAS_REASON, _word__in=words)

    def held(self) -> Self:
        """Live tasks that a person paused, or asked to pause."""
        return self.live().filter(pause_requested_at__isnull=False, ending="")


class Task(models.Model):
    """One supervised piece of work. All that a worker needs to go on is here, in the log and in the questions."""

    # what
    id = models.UUIDField(primary_key=True, db_default=new_id(), editable=False)
    body = models.CharField(_("body"), max_length=200)
    body_version = models.PositiveIntegerField(_("body version"), default=1)
    """The version that the task goes on with; a person may have said go on with a newer one."""
    version_at_start = models.PositiveIntegerField(_("version at start"), default=1)
    queue = models.CharField(_("queue"), max_length=100, default="default")
    priority = models.PositiveSmallIntegerField(_("priority"), default=5, help_text=_("0 runs first, 9 last."))
    arguments = models.JSONField(_("arguments"), default=dict)
    sensitive = models.JSONField(_("sensitive arguments"), default=list)
    """Names of arguments that every reader masks. On the row, so that a process without the body masks them too."""

    # whose and about what
    owner = models.ForeignKey(
        django_settings.AUTH_USER_MODEL,
        verbose_name=_("owner"),
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
        db_index=False,  # supervision_task_by_owner
    )
    owner_ref = models.CharField(max_length=200, blank=True, default="")
    """The owner as text (``user:7``): stays when the user is deleted, and part of the idempotency key."""
    created_by_ref = models.CharField(max_length=200, blank=True, default="", db_default="")
    """Who asked for the work, as ``owner_ref`` has it: a fork keeps its source's, a child its parent's. For
    separation of duties (``not_by="asker"``)."""
    subject = models.CharField(_("subject"), max_length=200, blank=True, default="")
    subject_type = models.ForeignKey(ContentType, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    subject_pk = models.CharField(max_length=200, blank=True, default="")
    subject_object = GenericForeignKey("subject_type", "subject_pk")

    # where it stands
    current_state = models.CharField(_("state"), max_length=10, choices=State.choices, default=State.PENDING)
    watchdog_stop_reason = models.TextField(_("reason"), blank=True, default="")
    generation = models.BigIntegerField(_("generation"), default=1)
    lease = models.BigIntegerField(_("lease"), default=0)
    log_length = models.BigIntegerField(_("log length"), default=0)
    replay_from = models.BigIntegerField(default=0)
    """Entries up to this number are not replayed: ``continue_as_new`` has closed them."""
    round = models.PositiveIntegerField(default=0)
    """How often it continued as new: part of the idempotency keys of its steps."""
    locked_decisions = models.JSONField(_("decisions"), default=dict)
    result = models.JSONField(_("result"), null=True, blank=True)
    failure = models.TextField(_("failure"), blank=True, default="")
    """One line for people. The whole of it is in the log."""

    # the queue
    wake_at = models.DateTimeField(_("due"), null=True, blank=True)
    offered_until = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField(_("expires"), null=True, blank=True)
    recoveries = models.PositiveIntegerField(_("recoveries"), default=0)
    compensations_outstanding = models.PositiveIntegerField(default=0)

    # what people asked for
    pause_requested_at = models.DateTimeField(_("pause requested"), null=True, blank=True)
    cancel_requested_at = models.DateTimeField(_("cancel requested"), null=True, blank=True)
    ending = models.CharField(max_length=10, choices=State.choices, blank=True, default="")
    ending_reason = models.TextField(blank=True, default="")

    # keys and family
    idempotency_key = models.CharField(max_length=200, blank=True, default="")
    concurrency_key = models.CharField(max_length=200, blank=True, default="")
    parent = models.ForeignKey("self", null=True, blank=True, on_delete=models.PROTECT, related_name="children")
    parent_step = models.CharField(max_length=410, blank=True, default="")
    children_awaited = models.PositiveIntegerField(default=0)
    """While it waits: how many of its children must still end before it is due."""
    is_awaited = models.BooleanField(default=True)
    """Whether the parent's present wait needs this child."""
    forked_from = models.UUIDField(null=True, blank=True)
    root_id = models.UUIDField(null=True, blank=True)
    """First task of the lineage of forks; itself for a first. No constraint, so that either end may be pruned."""

    # times, all of the database's clock
    created_at = models.DateTimeField(_("created"), db_default=database_now(), editable=False)
    started_at = models.DateTimeField(_("first taken"), null=True, blank=True)
    state_changed_at = models.DateTimeField(_("since"), db_default=database_now(), editable=False)
    finished_at = models.DateTimeField(_("finished"), null=True, blank=True)

    objects = TaskQuerySet.as_manager()

    class Meta:
        db_table = "supervision_task"
        verbose_name = _("task")
        verbose_name_plural = _("tasks")
        ordering = ("-id",)
        permissions = (
            ("pause_task", _("Can pause and resume tasks")),
            ("cancel_task", _("Can cancel and expire tasks")),
            ("retry_task", _("Can retry ended tasks")),
            ("signal_task", _("Can send signals to tasks")),
            ("answer_question", _("Can answer questions")),
        )
        constraints = (
            CheckConstraint(condition=Q(current_state__in=State.values), name="supervision_task_state_known"),
            CheckConstraint(
                condition=~Q(current_state=State.PARKED) | _HAS_REASON, name="supervision_task_parked_says_why"
            ),
            CheckConstraint(
                condition=Q(wake_at=None) | Q(current_state__in=[State.PENDING, State.PARKED]),
                name="supervision_task_wakes_only_idle",
            ),
            CheckConstraint(condition=Q(priority__lte=9), name="supervision_task_priority_0_to_9"),
            CheckConstraint(
                condition=Q(ending__in=["", State.FAILED, State.EXPIRED, State.CANCELLED]),
                name="supervision_task_ending_known",
            ),
            UniqueConstraint(
                fields=("owner_ref", "body", "idempotency_key"),
                condition=~Q(idempotency_key=""),
                name="supervision_task_idempotency",
            ),
            UniqueConstraint(
                fields=("concurrency_key",),
                condition=~Q(concurrency_key="") & _LIVE,
                name="supervision_task_concurrency",
            ),
            UniqueConstraint(
                fields=("forked_from",),
                condition=Q(forked_from__isnull=False) & _LIVE,
                name="supervision_task_one_fork",
            ),
            UniqueConstraint(
                fields=("parent", "parent_step"), condition=Q(parent__isnull=False), name="supervision_task_one_child"
            ),
        )
        # No index may name log_length, lease, or anything a checkpoint writes: HOT updates would be gone.
        indexes = (
            Index(
                fields=("queue", "priority", "wake_at"),
                condition=Q(wake_at__isnull=False) & (Q(pause_requested_at=None) | ~Q(ending="")),
                name="supervision_task_due",
            ),
            Index(
                fields=("expires_at",), condition=Q(expires_at__isnull=False) & _LIVE, name="supervision_task_expiry"
            ),
            Index(
                fields=("subject_type", "subject_pk"),
                condition=Q(subject_type__isnull=False),
                name="supervision_task_subject",
            ),
            # The control room's lists, newest first. A take and a park write each index that isn't partial once more,
            # so there is one for each filter that would otherwise read a million rows to find a few, and no more.
            Index(fields=("current_state", "id"), name="supervision_task_by_state"),  # and the reaper's running ones
            Index(fields=("body", "id"), name="supervision_task_by_body"),
            # retrying, unknown_body, the dead letters: the first word of a reason, which running tasks don't have
            Index(FirstWord("watchdog_stop_reason"), "id", condition=_HAS_REASON, name="supervision_task_by_reason"),
            Index(fields=("owner", "id"), condition=Q(owner__isnull=False), name="supervision_task_by_owner"),
            # those of organisations, and of users who were deleted
            Index(
                fields=("owner_ref", "id"),
                condition=Q(owner__isnull=True) & ~Q(owner_ref=""),
                name="supervision_task_by_owner_ref",
            ),
            # most work is in the default lane, which the primary key finds as fast
            Index(fields=("queue", "id"), condition=~Q(queue="default"), name="supervision_task_by_queue"),
            Index(fields=("id",), condition=Q(pause_requested_at__isnull=False) & _LIVE, name="supervision_task_held"),
            # who waits for a slot of the body
            Index(
                fields=("body", "owner_ref", "priority", "state_changed_at"),
                condition=Q(watchdog_stop_reason=Reason.AWAITING_SLOT.value),
                name="supervision_task_for_slot",
            ),
            # written once a task, at its end: throughput
            Index(
                fields=("finished_at", "current_state"),
                condition=Q(finished_at__isnull=False),
                name="supervision_task_finished",
            ),
            Index(fields=("root_id",), condition=Q(root_id__isnull=False), name="supervision_task_lineage"),  # forks
            # search; only tasks that have one
            Index(fields=("idempotency_key",), condition=~Q(idempotency_key=""), name="supervision_task_search_key"),
            Index(
                Collate(Upper("subject"), "C"),  # C, so that LIKE 'prefix%' can use it
                condition=~Q(subject=""),
                name="supervision_task_subject_text",
            ),
        )

    def __str__(self) -> str:
        return f"{self.body} {str(self.pk)[-12:]}"

    def signal_url(self, name: str, *, key: str = "") -> str:
        """An address that the outside world may POST to, once, to send this task the signal ``name``.

        JSON or form fields become the signal's payload. However often it is called, it is one signal: for another wait
        for the same name give another ``key``. A retry that keeps the steps hears it, too. A capability: hand it to
        whoever shall send, and log it nowhere. Raises LinkImpossible without BASE_URL, or without the pages' URLs, and
        NotStorable for a name that none can have.
        """
        return links.signal_url(self.pk, name, key)

    if TYPE_CHECKING:  # annotated by with_clock()
        db_now: datetime
        is_overdue: bool

    @property
    def is_terminal(self) -> bool:
        return self.current_state in TERMINAL

    @property
    def is_held(self) -> bool:
        """A pause stands and nothing is ending the task: no worker takes it."""
        return self.pause_requested_at is not None and not self.ending

    @property
    def awaits_operator(self) -> bool:
        return self.current_state == State.PARKED and first_word(self.watchdog_stop_reason) in OPERATOR_REASONS

    @property
    def masked_arguments(self) -> Any:
        """The arguments as any reader but the body may see them."""
        return masking.mask_names(self.arguments, self.sensitive)

    @property
    def secrets(self) -> list[str]:
        """The values that must not be shown, to be masked wherever they turn up."""
        return masking.secrets_of(self.arguments, self.sensitive)


class Start(models.Model):
    """When a drive of a body with a limited rate began: kept as long as that limit looks back."""

    body = models.CharField(max_length=200)
    started_at = models.DateTimeField()

    class Meta:
        db_table = "supervision_start"
        indexes = (Index(fields=("body", "started_at"), name="supervision_start_recent"),)

    def __str__(self) -> str:
        return f"{self.body} {self.started_at:%H:%M:%S}"


class Heartbeat(models.Model):
    """Who drives a task and when they were last heard of; one narrow row per task, kept.

    A table of its own: a beat must never wait for a client's lock on the task row."""

    task = models.OneToOneField(Task, primary_key=True, on_delete=models.PROTECT, related_name="heartbeat")
    lease = models.BigIntegerField()
    worker = models.CharField(max_length=200)
    host = models.CharField(max_length=200)
    pid = models.IntegerField()
    process_started = models.CharField(max_length=30, blank=True, default="", db_default="")
    """Tells the process from a later one of its pid: ``identity.started_of``."""
    started_at = models.DateTimeField()
    beat_at = models.DateTimeField()
    progress_done = models.BigIntegerField(null=True)
    progress_total = models.BigIntegerField(null=True)
    progress_text = models.CharField(max_length=200, blank=True, default="")

    class Meta:
        db_table = "supervision_heartbeat"
        verbose_name = _("heartbeat")
        verbose_name_plural = _("heartbeats")

    def __str__(self) -> str:
        return f"{self.worker} ({self.lease})"


class QuestionQuerySet(models.QuerySet["Question"]):
    def pending(self) -> Self:
        return self.filter(status=Question.Status.PENDING)

    def overdue(self) -> Self:
        return self.pending().filter(expires_at__lte=Now())


class Question(models.Model):
    """What a task asks a person. ``key`` is unique in its task: the same key gives the same answer."""

    class Status(models.TextChoices):
        PENDING = "pending", _("pending")
        ANSWERED = "answered", _("answered")
        EXPIRED = "expired", _("expired")
        WITHDRAWN = "withdrawn", _("withdrawn")

    id = models.UUIDField(primary_key=True, db_default=new_id(), editable=False)
    task = models.ForeignKey(Task, on_delete=models.PROTECT, related_name="questions", db_index=False)
    key = models.CharField(_("key"), max_length=200)
    prompt = models.TextField(_("question"))
    form = models.JSONField(default=dict)
    """Kind, choices, help: what ``question_form.form_for`` makes a Django form of."""
    answerable_by = models.CharField(_("answerable by"), max_length=200, blank=True, default="")
    """Empty: whoever has the permission. ``owner``, ``group:3``, ``user:7``. See ``kernel/entitlement.py``."""
    not_by = models.CharField(_("not by"), max_length=20, blank=True, default="")
    """Separation of duties: ``asker``, ``owner``, or both with a comma."""
    approvals = models.PositiveSmallIntegerField(_("approvals"), default=1)
    """How many people must say yes. Each has one vote, and the first no decides."""
    status = models.CharField(_("status"), max_length=10, choices=Status.choices, default=Status.PENDING)
    asked_at = models.DateTimeField(_("asked"), db_default=database_now(), editable=False)
    expires_at = models.DateTimeField(_("expires"), null=True, blank=True)
    answer = models.JSONField(_("answer"), null=True, blank=True)
    answered_at = models.DateTimeField(_("answered"), null=True, blank=True)
    answered_by = models.ForeignKey(
        django_settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    answered_by_ref = models.CharField(_("answered by"), max_length=200, blank=True, default="")
    answered_via = models.CharField(_("answered through"), max_length=50, blank=True, default="")

    objects = QuestionQuerySet.as_manager()

    class Meta:
        db_table = "supervision_question"
        verbose_name = _("question")
        verbose_name_plural = _("questions")
        ordering = ("id",)
        constraints = (
            UniqueConstraint(fields=("task", "key"), name="supervision_question_one_per_key"),
            CheckConstraint(condition=Q(status__in=["pending", "answered", "expired", "withdrawn"]),
                            name="supervision_question_status_known"),
            # None is stored as SQL NULL, Value(None, JSONField()) as the JSON null: both are no answer.
            CheckConstraint(
                condition=~Q(status="answered")
                | (
                    Q(answer__isnull=False)
                    & ~Q(answer=models.Value(None, models.JSONField()))
                    & ~Q(answer__in=["", [], {}])
                    & Q(answered_at__isnull=False)
                    & ~Q(answered_by_ref="")
                ),
                name="supervision_question_answered_has_answer",
            ),
        )  # fmt: skip
        indexes = (
            Index(fields=("expires_at",), condition=Q(status="pending"), name="supervision_question_pending"),
            # the inbox, oldest first; and the same question in many tasks. Small: pending ones only
            Index(fields=("id",), condition=Q(status="pending"), name="supervision_question_inbox"),
            Index(fields=("key", "id"), condition=Q(status="pending"), name="supervision_question_same"),
        )

    def __str__(self) -> str:
        return self.key

    def answer_link(self, user: Any, *, expires_after: timedelta | None = None) -> str:
        """An address at which ``user`` answers this question without signing in, for an e-mail to them.

        Opening it changes nothing; the form there answers, in their name. It gives no right: whether they may answer is
        judged when they do. Good for one answer, and for ``expires_after`` (default ANSWER_LINK_EXPIRES_AFTER) by the
        database's clock, or until the question or the account is closed. A capability: log it nowhere. Raises
        LinkImpossible without BASE_URL, or without the pages' URLs.
        """
        return links.answer_url(self, user, expires_after)


class Signal(models.Model):
    """What the outside world tells a task; kept when early, consumed once, in order."""

    id = models.UUIDField(primary_key=True, db_default=new_id(), editable=False)
    task = models.ForeignKey(Task, on_delete=models.PROTECT, related_name="signals", db_index=False)
    name = models.CharField(_("name"), max_length=200)
    payload = models.JSONField(_("payload"), null=True, blank=True)
    key = models.CharField(_("key"), max_length=200, blank=True, default="")
    sent_at = models.DateTimeField(_("sent"), db_default=database_now(), editable=False)
    sent_by_ref = models.CharField(_("sent by"), max_length=200, blank=True, default="")
    position = models.BigIntegerField()
    """The number of the log entry that recorded its arrival: the order of consumption. Negative: it came to the task
    that this one is a fork of."""
    consumed_in = models.BigIntegerField(null=True, blank=True)
    """The number of the log entry that consumed it."""

    class Meta:
        db_table = "supervision_signal"
        verbose_name = _("signal")
        verbose_name_plural = _("signals")
        ordering = ("position",)
        constraints = (
            UniqueConstraint(fields=("task", "position"), name="supervision_signal_position"),
            UniqueConstraint(
                fields=("task", "name", "key"), condition=~Q(key=""), name="supervision_signal_one_per_key"
            ),
        )

    def __str__(self) -> str:
        return self.name


class LogEntry(models.Model):
    """Audit trail and event history in one. Append-only by trigger; numbered without gaps from 1."""

    pk = models.CompositePrimaryKey("task_id", "sequence_num")
    # No constraint of the database: its check would lock the task row once more at each checkpoint. Entries are only
    # written by the statement that updates their task, and a task is only deleted through the tombstone's door.
    task = models.ForeignKey(
        Task, on_delete=models.PROTECT, related_name="entries", db_index=False, db_constraint=False
    )
    sequence_num = models.BigIntegerField(_("number"))
    event = models.CharField(_("event"), max_length=40)
    name = models.CharField(_("name"), max_length=400, blank=True, default="")
    """Of a step, question or signal, where the event has one."""
    payload = models.JSONField(_("payload"), default=dict)
    lease = models.BigIntegerField(default=0)
    actor_ref = models.CharField(_("by"), max_length=200, blank=True, default="")
    created_at = models.DateTimeField(_("at"), db_default=database_now(), editable=False)

    class Meta:
        db_table = "supervision_logentry"
        verbose_name = _("log entry")
        verbose_name_plural = _("log entries")
        ordering = ("task", "sequence_num")

    def __str__(self) -> str:
        return f"{self.sequence_num} {self.event}"


class Tombstone(models.Model):
    """What stays of a pruned task, and the key of the log's first door: entries may be deleted where one stands."""

    task_id = models.UUIDField(primary_key=True)
    owner_ref = models.CharField(max_length=200, blank=True, default="")
    body = models.CharField(max_length=200)
    idempotency_key = models.CharField(max_length=200, blank=True, default="")
    final_state = models.CharField(max_length=10)
    finished_at = models.DateTimeField(null=True)
    log_length = models.BigIntegerField()
    pruned_at = models.DateTimeField(db_default=database_now())

    class Meta:
        db_table = "supervision_tombstone"
        verbose_name = _("tombstone")
        verbose_name_plural = _("tombstones")
        indexes = (
            Index(
                fields=("owner_ref", "body", "idempotency_key"),
                condition=~Q(idempotency_key=""),
                name="supervision_tombstone_key",
            ),
        )

    def __str__(self) -> str:
        return str(self.task_id)


class Erasure(models.Model):
    """The key of the log's second door: where one stands, payloads may be replaced by the erased marker."""

    task_id = models.UUIDField(primary_key=True)
    erased_at = models.DateTimeField(db_default=database_now())
    actor_ref = models.CharField(max_length=200)
    note = models.TextField(blank=True, default="")

    class Meta:
        db_table = "supervision_erasure"
        verbose_name = _("erasure")
        verbose_name_plural = _("erasures")

    def __str__(self) -> str:
        return str(self.task_id)


ERASED = {"erased": True}
"""What stands where a person's data stood."""
