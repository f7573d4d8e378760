"""Puts a subject's pointer into another state: ``manage.py supervision_repoint NAME SUBJECT STATE --by ann``."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils.translation import gettext as _

from supervision.engines import repoint
from supervision.errors import SupervisionError


class Command(BaseCommand):
    help = _(
        "Moves a subject's pointer to a state of its pipeline, or to one of its ends. A waiting run goes on from "
        "there; an ended one starts anew there, unless the state is an end. Recorded with who and why."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help=_("The pipeline's name."))
        parser.add_argument("subject")
        parser.add_argument("state")
        parser.add_argument("--by", required=True, help=_("Who decides so; kept in the visit."))
        parser.add_argument("--note", default="", help=_("Why; kept in the visit."))
        parser.add_argument("--expected-generation", type=int, help=_("Refuse if the pointer has moved since."))

    def handle(
        self, *args: Any, name: str, subject: str, state: str, by: str, note: str, expected_generation: int | None,
        **options: Any,
    ) -> None:  # fmt: skip
        try:
            pointer = repoint(name, subject, state, by=by, note=note, expected_generation=expected_generation)
        except SupervisionError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(
            _("%(pointer)s is at %(state)s (generation %(generation)s).")
            % {"pointer": pointer, "state": pointer.state, "generation": pointer.generation}
        )
