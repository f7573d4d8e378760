"""The picture of a pipeline, a machine or a DAG: ``manage.py supervision_diagram NAME --format svg``."""

import sys
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils.translation import gettext as _

from supervision import diagrams
from supervision.conf import settings
from supervision.diagrams import Graph
from supervision.engines.dags import dags
from supervision.engines.dags import picture as dag_picture
from supervision.engines.machines import Machine, histories
from supervision.engines.machines import machine as machines
from supervision.engines.machines import picture as machine_picture
from supervision.engines.pipelines import pipeline, standing
from supervision.engines.pipelines.errors import UnknownPipeline
from supervision.engines.pipelines.models import Pointer
from supervision.engines.pipelines.picture import graph_of
from supervision.errors import SupervisionError


class Command(BaseCommand):
    help = _(
        "Draws a pipeline or a machine from the very table that runs: its states, what leads where, yields, caps, "
        "guards and ends; or a DAG: its nodes with their joins and conditions. Without --counts and --subject the "
        "database isn't asked."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help=_("The name of the pipeline, machine or DAG."))
        parser.add_argument("--format", choices=diagrams.FORMATS, default="svg", help=_("Default: svg."))
        parser.add_argument("--output", type=Path, metavar=_("FILE"), help=_("Default: standard output."))
        parser.add_argument("--counts", action="store_true", help=_("Show how many subjects are in each state."))
        parser.add_argument(
            "--subject",
            metavar=_("SUBJECT"),
            default="",
            help=_("Light the state it is in; of a machine's row its key."),
        )

    def handle(
        self, *args: Any, name: str, format: str, output: Path | None, counts: bool, subject: str, **options: Any
    ) -> None:
        try:
            drawn = diagrams.render(_graph(name, counts, subject), format)
        except SupervisionError as error:
            raise CommandError(str(error)) from error
        if output is not None:
            output.write_bytes(drawn)
        elif format == "png":
            sys.stdout.buffer.write(drawn)
        else:
            self.stdout.write(drawn.decode(), ending="")


def _graph(name: str, counts: bool, subject: str) -> Graph:
    if name in pipeline.tables():
        found = standing.counts(name) if counts else None
        return graph_of(pipeline.get(name), counts=found, current=_state_of(name, subject))
    if name in machines.machines():
        return _graph_of_machine(machines.get(name), counts, subject)
    if name in (known := dags()):
        return dag_picture.graph_of(known[name].body.label, known[name].ordered())
    raise UnknownPipeline(name, sorted([*pipeline.tables(), *machines.machines(), *known]))


def _graph_of_machine(machine: Machine, counts: bool, subject: str) -> Graph:
    found = histories.counts(machine) if counts else None
    current = machine.state(subject) if subject else ""
    return machine_picture.graph_of(machine.table, counts=found, current=current)


def _state_of(name: str, subject: str) -> str:
    if not subject:
        return ""
    pointer = Pointer.objects.using(settings.DATABASE).filter(pipeline=name, subject=subject).first()
    if pointer is None:
        raise CommandError(_("The pipeline “%(name)s” has no pointer of “%(subject)s”.")
                           % {"name": name, "subject": subject})  # fmt: skip
    return pointer.state
