"""Votes: a question that needs several people's yes. One vote a person; the first no decides."""

from __future__ import annotations

from typing import Any

from django.conf import settings as django_settings
from django.db import models
from django.db.models import UniqueConstraint
from django.utils.translation import gettext_lazy as _

from supervision.conf import settings
from supervision.errors import AlreadyVoted
from supervision.kernel import storable
from supervision.kernel.actors import actor_ref, person_ref
from supervision.kernel.models import Question, Task, database_now, new_id


class Vote(models.Model):
    """What one person said to a question with ``approvals`` above one."""

    id = models.UUIDField(primary_key=True, db_default=new_id(), editable=False)
    question = models.ForeignKey(Question, on_delete=models.PROTECT, related_name="votes", db_index=False)
    voter = models.ForeignKey(
        django_settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    voter_ref = models.CharField(max_length=200)
    """The person as a key that stays (``user:7``), so that one renamed or deleted is still one person."""
    voter_name = models.CharField(_("by"), max_length=200)
    approves = models.BooleanField(_("yes"))
    cast_at = models.DateTimeField(_("at"), db_default=database_now(), editable=False)
    cast_via = models.CharField(_("through"), max_length=50)
    note = models.TextField(_("note"), blank=True, default="")

    class Meta:
        db_table = "supervision_vote"
        verbose_name = _("vote")
        verbose_name_plural = _("votes")
        ordering = ("id",)
        default_permissions = ()
        constraints = (UniqueConstraint(fields=("question", "voter_ref"), name="supervision_vote_one_each"),)

    def __str__(self) -> str:
        return self.voter_name


def cast(question: Question, task: Task, *, approves: bool, by: Any, via: str, note: str = "") -> bool:
    """Stores the person's vote under the lock of the ``task``; whether it decides the question.

    Raises AlreadyVoted. A no decides at once, a yes when it is the last one needed.
    """
    votes = Vote.objects.using(settings.DATABASE)
    earlier = votes.filter(question=question, voter_ref=person_ref(by)).first()
    if earlier is not None:
        raise AlreadyVoted(earlier)
    votes.create(
        question=question,
        voter=by if hasattr(by, "pk") else None,
        voter_ref=person_ref(by),
        voter_name=actor_ref(by),
        approves=approves,
        cast_at=task.db_now,
        cast_via=via,
        note=storable.text(note, 2000),
    )
    return not approves or votes.filter(question=question, approves=True).count() >= question.approvals
