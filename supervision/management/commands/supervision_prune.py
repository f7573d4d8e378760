"""Archives and removes old ended tasks: ``manage.py supervision_prune --older-than 90d --archive tasks.jsonl``."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils.translation import gettext as _

from supervision.conf import settings
from supervision.engines import registry
from supervision.errors import SupervisionError
from supervision.kernel import ages
from supervision.kernel.archive import Archive
from supervision.kernel.models import Task
from supervision.kernel.pruning import Pruned, Pruning

_SHOWN = 5


class Command(BaseCommand):
    help = _(
        "Archives ended tasks with their children and logs into a file of JSON lines, then removes them. Each leaves "
        "a tombstone that keeps its idempotency key taken. May be stopped or killed at any moment and run again: no "
        "entry is lost, and none stands in the archive twice. Without --older-than, SUPERVISION['RETENTION'] says how "
        "old."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--older-than", type=_age, metavar="AGE", help=_("Ended so long ago: 90d, 36h, 12w, 2y."))
        parser.add_argument("--body", action="append", default=[], help=_("Only tasks of this body; may be repeated."))
        where = parser.add_mutually_exclusive_group(required=True)
        where.add_argument("--archive", type=Path, metavar="FILE", help=_("Is added to, and made if it isn't there."))
        where.add_argument("--without-archive", action="store_true", help=_("Remove them for good."))
        where.add_argument("--dry-run", action="store_true", help=_("Only tell how many there are of each body."))
        parser.add_argument("--keep-files", action="store_true", help=_("Leave their files in the storage."))

    def handle(
        self, *args: Any, older_than: timedelta | None, body: list[str], archive: Path | None, dry_run: bool,
        keep_files: bool, **options: Any,
    ) -> None:  # fmt: skip
        try:
            _refuse_unknown(body)
            pruning = Pruning(older_than, body)
            if dry_run:
                self._tell(pruning.count())
            elif archive is None:
                self._run(pruning.run(None, keep_files=keep_files), pruning)
            else:
                with Archive(archive) as opened:
                    self._run(pruning.run(opened, keep_files=keep_files), pruning)
        except (SupervisionError, ValueError) as error:
            raise CommandError(str(error)) from None

    def _tell(self, counts: dict[str, int]) -> None:
        for body, count in counts.items():
            self.stdout.write(f"{count:>9,}  {body}")
        self.stdout.write(_("%(n)s families would be removed.") % {"n": f"{sum(counts.values()):,}"})

    def _run(self, progress: Iterator[Pruned], pruning: Pruning) -> None:
        watched = self.stdout.isatty()
        total = sum(pruning.count().values()) if watched else 0
        done, shown_at = Pruned(), 0.0
        for done in progress:
            if watched and time.monotonic() > shown_at + 0.1:
                shown_at = time.monotonic()
                self.stdout.write("\r\x1b[K" + _bar(done.families, total), ending="")
                self.stdout.flush()
        if watched:
            self.stdout.write("\r\x1b[K", ending="")
        self.stdout.write(
            _("Removed: %(families)s families, %(tasks)s tasks.")
            % {"families": f"{done.families:,}", "tasks": f"{done.tasks:,}"}
        )
        if done.skipped:
            some = ", ".join(map(str, done.skipped[:_SHOWN])) + (", …" if len(done.skipped) > _SHOWN else "")
            self.stdout.write(
                _("Left: %(n)s, of which a child lives, which are busy, or which a row of yours refers to: %(some)s")
                % {"n": f"{len(done.skipped):,}", "some": some}
            )


def _bar(done: int, total: int) -> str:
    share = min(1.0, done / total) if total else 1.0
    filled = int(share * 24)
    text = _("%(done)s of %(total)s families") % {"done": f"{done:,}", "total": f"{total:,}"}
    return f"[{'#' * filled}{'.' * (24 - filled)}] {share:4.0%}  {text}"[: shutil.get_terminal_size().columns - 1]


def _age(text: str) -> timedelta:
    try:
        return ages.age(text) or timedelta(0)
    except ValueError as error:
        raise CommandError(f"--older-than: {error}") from None


def _refuse_unknown(bodies: list[str]) -> None:
    """A body that was renamed may have tasks yet and be registered no more."""
    known = {each.name for each in registry.bodies()}
    for name in bodies:
        if name not in known and not Task.objects.using(settings.DATABASE).filter(body=name).exists():
            raise CommandError(
                _("--body: no body and no task is called “%(name)s”. Known: %(known)s.")
                % {"name": name, "known": ", ".join(sorted(known)) or _("none")}
            )
