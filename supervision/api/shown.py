"""What the API shows of a task, its log and its questions: secrets masked, states in words beside their names."""

from __future__ import annotations

from typing import Any

from django.db.models import Case, F, JSONField, Value, When
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from supervision import wording
from supervision.engines import verbs
from supervision.kernel import masking
from supervision.kernel.models import Question, Task
from supervision.kernel.states import DEAD_LETTER_REASONS, State, first_word
from supervision.showing import log_lines
from supervision.showing.tasks import body_label


class ProgressSerializer(serializers.Serializer[Any]):
    done = serializers.IntegerField(allow_null=True)
    total = serializers.IntegerField(allow_null=True)
    text = serializers.CharField()


class TaskSerializer(serializers.Serializer[Any]):
    """A task in a list. ``needs_answer`` must have been annotated or set."""

    id = serializers.UUIDField(source="pk")
    body = serializers.CharField()
    label = serializers.SerializerMethodField(help_text="The body, for people.")  # type: ignore[assignment]
    subject = serializers.CharField()
    owner = serializers.CharField(source="owner_ref", help_text="Like user:7; empty for nobody.")
    state = serializers.ChoiceField(source="current_state", choices=State.choices)
    reason = serializers.CharField(source="watchdog_stop_reason", help_text="Why it is parked, or how it ended.")
    situation = serializers.SerializerMethodField(help_text="What it is doing, for people.")
    generation = serializers.IntegerField(help_text="Grows with each change that you could act on.")
    needs_answer = serializers.BooleanField()
    is_dead_letter = serializers.SerializerMethodField()
    progress = serializers.SerializerMethodField()
    created_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    state_changed_at = serializers.DateTimeField()
    due_at = serializers.DateTimeField(source="wake_at", allow_null=True)
    expires_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)

    masked: tuple[str, ...] = ("subject", "reason", "situation", "progress")

    def get_label(self, task: Task) -> str:
        return body_label(task.body)

    def get_situation(self, task: Task) -> str:
        spoken = wording.situation(task).label
        reason = "" if task.current_state == State.RUNNING else wording.reason(task.watchdog_stop_reason)
        return f"{spoken}: {reason}" if reason else spoken

    def get_is_dead_letter(self, task: Task) -> bool:
        return task.current_state == State.FAILED and first_word(task.watchdog_stop_reason) in DEAD_LETTER_REASONS

    @extend_schema_field(ProgressSerializer(allow_null=True))
    def get_progress(self, task: Task) -> dict[str, Any] | None:
        beat = getattr(task, "heartbeat", None)
        if beat is None or (beat.progress_done is None and not beat.progress_text):
            return None
        return {"done": beat.progress_done, "total": beat.progress_total, "text": beat.progress_text}

    def to_representation(self, instance: Any) -> dict[str, Any]:
        shown = super().to_representation(instance)
        return masked(shown, self.masked, secrets_of(instance))


class TaskDetailSerializer(TaskSerializer):
    """A task by itself."""

    queue = serializers.CharField()
    priority = serializers.IntegerField()
    arguments = serializers.JSONField(source="masked_arguments")
    decisions = serializers.JSONField(source="locked_decisions", allow_null=True, help_text="For the staff; else null.")
    result = serializers.JSONField(allow_null=True)
    failure = serializers.CharField()
    next = serializers.SerializerMethodField(help_text="What happens next, for people.")
    can = serializers.SerializerMethodField(help_text="What can be asked of it now.")
    log_length = serializers.IntegerField()
    parent = serializers.UUIDField(source="parent_id", allow_null=True)  # type: ignore[assignment]
    forked_from = serializers.UUIDField(allow_null=True)

    masked = (*TaskSerializer.masked, "arguments", "decisions", "result", "failure")

    def get_next(self, task: Task) -> str:
        return wording.next_step(task, pending=int(self.context.get("pending", 0)))

    @extend_schema_field(serializers.ListField(child=serializers.ChoiceField(choices=sorted(verbs.VERBS))))
    def get_can(self, task: Task) -> list[str]:
        return verbs.possible(task)


_FOR_ALL = ("message", "reason", "note")
"""What of a payload is meant for people; results of steps, tracebacks and hosts are the staff's to read."""


class EntrySerializer(serializers.Serializer[Any]):
    """An entry, for the staff whole. ``is_overseer`` in the context says who reads."""

    number = serializers.IntegerField(source="sequence_num")
    event = serializers.CharField()
    label = serializers.SerializerMethodField(help_text="The event, for people.")  # type: ignore[assignment]
    name = serializers.CharField(help_text="Of the step, question or signal, where the event has one.")
    payload = serializers.DictField(
        child=serializers.JSONField(), help_text="Of its owner’s log: message, reason and note, where there are any."
    )
    actor = serializers.CharField(source="actor_ref", help_text="Who did it; empty for workers.")
    at = serializers.DateTimeField(source="created_at")

    def get_label(self, entry: Any) -> str:
        return wording.event(entry.event)

    def to_representation(self, instance: Any) -> dict[str, Any]:
        shown = super().to_representation(instance)
        if not self.context.get("is_overseer"):
            shown["payload"] = {name: shown["payload"][name] for name in _FOR_ALL if name in shown["payload"]}
            shown["actor"] = "" if instance.event in log_lines.MACHINES else shown["actor"]
        return shown


class LogSerializer(serializers.Serializer[Any]):
    """One page of the log, and what it withholds."""

    entries = EntrySerializer(many=True)
    returned_count = serializers.IntegerField()
    total_count = serializers.IntegerField(help_text="Exact.")
    withheld_count = serializers.IntegerField(help_text="Entries that are not on this page.")
    truncated = serializers.BooleanField()
    older = serializers.IntegerField(allow_null=True, help_text="Pass it as before= for the page before this one.")


class QuestionSerializer(serializers.Serializer[Any]):
    """A question. ``can_answer`` must have been set: whether this person may."""

    id = serializers.UUIDField(source="pk")
    task = serializers.UUIDField(source="task_id")
    key = serializers.CharField()
    prompt = serializers.CharField()
    kind = serializers.SerializerMethodField(help_text="text, yes_no, choice, choices, number, date, file, json, form")
    choices = serializers.SerializerMethodField(help_text="Pairs of value and label.")
    help = serializers.SerializerMethodField()
    status = serializers.ChoiceField(choices=Question.Status.choices)
    approvals = serializers.IntegerField(help_text="How many people must say yes.")
    can_answer = serializers.BooleanField()
    asked_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField(allow_null=True)
    answer = serializers.JSONField(allow_null=True)
    answered_at = serializers.DateTimeField(allow_null=True)
    answered_by = serializers.CharField(source="answered_by_ref")

    def get_kind(self, question: Question) -> str:
        return str(question.form.get("kind", "text"))

    @extend_schema_field(serializers.ListField(child=serializers.ListField(child=serializers.CharField())))
    def get_choices(self, question: Question) -> list[list[str]]:
        return [[str(value), str(label)] for value, label in question.form.get("choices", ())]

    def get_help(self, question: Question) -> str:
        return str(question.form.get("help", ""))

    def to_representation(self, instance: Any) -> dict[str, Any]:
        shown = super().to_representation(instance)
        return masked(shown, ("prompt", "choices", "help", "answer"), secrets_of(instance.task))


class SignalSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField(source="pk")
    task = serializers.UUIDField(source="task_id")
    name = serializers.CharField()
    key = serializers.CharField()
    sent_at = serializers.DateTimeField()
    is_consumed = serializers.SerializerMethodField()

    def get_is_consumed(self, signal: Any) -> bool:
        return signal.consumed_in is not None


def masked(shown: dict[str, Any], names: tuple[str, ...], secrets: list[str]) -> dict[str, Any]:
    """``shown`` with the secrets masked in the values of these names."""
    if not secrets:
        return shown
    return {key: masking.mask_values(value, secrets) if key in names else value for key, value in shown.items()}


def secrets_of(task: Task) -> list[str]:
    """Of lists, which load the arguments of tasks with secrets only, as ``secret_arguments``."""
    if not task.sensitive:
        return []
    return masking.secrets_of(getattr(task, "secret_arguments", None) or task.arguments, task.sensitive)


def where_secret(path: str = "") -> Case:
    """The arguments of tasks that have secrets, to mask those; None for the others, so that lists stay light."""
    return Case(
        When(**{f"{path}sensitive": []}, then=Value(None, JSONField())), default=F(f"{path}arguments"),
        output_field=JSONField(),
    )  # fmt: skip
