"""Erases one person's data: ``manage.py supervision_erase --user ann --by dpo``, or ``--task ID --by dpo``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from supervision.conf import settings
from supervision.errors import Busy, Refused
from supervision.kernel import retention
from supervision.kernel.actors import owner_ref
from supervision.kernel.models import Erasure, Task
from supervision.kernel.states import TERMINAL


class Command(BaseCommand):
    help = _(
        "Replaces a person's data in ended tasks by a marker, and removes their files: arguments, decisions, results, "
        "failures, questions and answers, signals, and what the log's entries hold. The skeleton of the trail stays: "
        "that each task ran, when, which steps, its subject and keys, and who acted. This can't be undone."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--user", metavar="NAME", help=_("Every task that this user owns; user:7 for a deleted one.")
        )
        parser.add_argument("--task", type=UUID, action="append", default=[], metavar="ID",
                            help=_("This task, its children, and the retries of both; may be repeated."))  # fmt: skip
        parser.add_argument("--by", required=True, help=_("Who decides so; kept."))
        parser.add_argument("--note", default="", help=_("Why; kept."))
        parser.add_argument("--dry-run", action="store_true", help=_("Only tell what would be erased."))
        parser.add_argument("--no-input", action="store_false", dest="interactive", help=_("Don't ask."))

    def handle(
        self, *args: Any, user: str | None, task: list[UUID], by: str, note: str, dry_run: bool, interactive: bool,
        **options: Any,
    ) -> None:  # fmt: skip
        ids = _chosen(user, task)
        tasks = Task.objects.using(settings.DATABASE)
        erased = set(Erasure.objects.using(settings.DATABASE).filter(pk__in=ids).values_list("pk", flat=True))
        live = list(tasks.filter(pk__in=ids).exclude(current_state__in=TERMINAL).values_list("pk", flat=True))
        todo = [each for each in ids if each not in erased and each not in set(live)]
        for each in tasks.filter(pk__in=todo).order_by("pk"):
            self.stdout.write(f"{each.pk}  {each.body}  {each.subject}".rstrip())
        if erased:
            self.stdout.write(_("Erased before: %(n)s.") % {"n": len(erased)})
        if dry_run:
            self.stdout.write(_("Would be erased: %(n)s.") % {"n": len(todo)})
        elif todo and (not interactive or self._is_sure(len(todo))):
            live += self._erase(todo, by, note)
        if live:
            raise CommandError(
                _("Not erased, since they or their parents live: %(tasks)s. Cancel them, then run this again.")
                % {"tasks": ", ".join(map(str, live))}
            )

    def _is_sure(self, count: int) -> bool:
        question = ngettext(
            "Erase the data of %(n)s task, for good?", "Erase the data of %(n)s tasks, for good?", count
        )
        if input(question % {"n": count} + _(" Type “yes”: ")) == "yes":
            return True
        raise CommandError(_("Nothing was erased."))

    def _erase(self, task_ids: Sequence[UUID], by: str, note: str) -> list[UUID]:
        """Those that were refused."""
        refused, files = [], 0
        for pk in task_ids:
            try:
                files += retention.erase(pk, by=by, note=note)
            except (Refused, Busy):
                refused.append(pk)
        self.stdout.write(
            _("Erased: the data of %(tasks)s tasks, and %(files)s files. What stays is the skeleton: that each ran, "
              "when, which steps, its subject and keys, and who acted. Archives and backups that were made before "
              "still hold the data.")
            % {"tasks": len(task_ids) - len(refused), "files": files}
        )  # fmt: skip
        return refused


def _chosen(user: str | None, task_ids: Sequence[UUID]) -> list[UUID]:
    if (user is None) == (not task_ids):
        raise CommandError(_("Say whose or which: --user NAME, or --task ID."))
    tasks = Task.objects.using(settings.DATABASE)
    if user is not None:
        return sorted(tasks.filter(owner_ref=_owner(user)).values_list("pk", flat=True))
    found = retention.related(task_ids)
    if missing := [each for each in task_ids if each not in set(found)]:
        raise CommandError(_("There is no task %(id)s.") % {"id": ", ".join(map(str, missing))})
    return found


def _owner(name: str) -> str:
    model: Any = get_user_model()
    user = model._default_manager.filter(**{model.USERNAME_FIELD: name}).first()
    if user is not None:
        return owner_ref(user)
    if re.fullmatch(rf"{model._meta.model_name}:.+", name):
        return name
    raise CommandError(
        _("There is no user “%(name)s”. A deleted one's tasks are found by %(model)s:ID.")
        % {"name": name, "model": model._meta.model_name}
    )
