"""What a deploy would leave stranded: ``manage.py supervision_check_pipelines``, to be run by the new code first."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from supervision.engines.pipelines import standing

_SHOWN = 100


class Command(BaseCommand):
    help = _(
        "Lists the pointers whose pipeline is not registered here, or whose state its table does not have. Their runs "
        "park as unknown_state until the state is back or an operator re-points them. Exit status: 1 if there are any."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--all", action="store_true", help=_("Those without a live run, too."))

    def handle(self, *args: Any, **options: Any) -> None:
        lost = standing.lost()
        if not options["all"]:
            lost = lost.running()
        count = lost.count()
        for pointer in lost[:_SHOWN]:
            self.stdout.write(f"{pointer.pipeline}\t{pointer.subject}\t{pointer.state}")
        if count > _SHOWN:
            self.stdout.write(_("… and %(n)s more") % {"n": count - _SHOWN})
        if not count:
            self.stdout.write(_("Every pointer is in a state that its pipeline has."))
            return
        self.stderr.write(
            self.style.ERROR(
                ngettext("%(n)s pointer is in no known state.", "%(n)s pointers are in no known state.", count)
                % {"n": count}
            )
        )
        raise SystemExit(1)
