"""The cluster that runs supervised work: ``manage.py supervision_worker``."""

import logging
from argparse import ArgumentTypeError
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import connections
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from supervision.engines.registry import known_versions
from supervision.worker import cluster
from supervision.worker.broker import Broker
from supervision.worker.outside import Outside


class Command(BaseCommand):
    help = _(
        "Runs supervised tasks, and ordinary django-q2 tasks, in worker processes until it is stopped. "
        "SIGTERM or Ctrl-C stops it: nothing new is taken, each task is parked at its next checkpoint, due at once for "
        "the next worker, and whatever needs longer than STOP_GRACE_SECONDS is killed. A second signal kills at once. "
        "Exit status: 0 after a stop that was asked for, 1 after a failure."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--queue",
            action="append",
            metavar=_("NAME"),
            dest="queues",
            help=_(
                "Take only tasks of this queue; may be given several times. Of the ordinary django-q2 tasks, those of "
                "a cluster of that name are taken. Default: the tasks of all queues, and this cluster's ordinary ones."
            ),
        )
        parser.add_argument(
            "--workers",
            type=_count,
            metavar=_("N"),
            help=_("How many tasks run at a time, each in a process. Default: Q_CLUSTER['workers'], or one per CPU."),
        )

        parser.add_argument(
            "--alive-file",
            type=Path,
            metavar=_("PATH"),
            help=_("Touch this file once a second while the cluster lives: for a liveness probe without a database."),
        )

    def handle(
        self, *args: Any, queues: list[str] | None, workers: int | None, alive_file: Path | None, **options: Any
    ) -> None:
        _show_progress(options["verbosity"])
        _keep_connections()
        broker = Broker(queues=queues)
        if cluster.is_supported():
            ours = cluster.Cluster(broker, workers, Outside(alive_file))
            self._say(ours.workers, queues)
            status = ours.run()
        else:
            self.stderr.write(
                self.style.WARNING(
                    _(
                        "This system can't fork, so django-q2's own cluster runs instead. Tasks are still never lost "
                        "or done twice, but a stop doesn't park them and a killed process may freeze the cluster."
                    )
                )
            )
            status = cluster.run_stock(broker)
        if status:
            raise SystemExit(status)

    def _say(self, workers: int, queues: list[str] | None) -> None:
        bodies = known_versions()
        self.stdout.write(
            _("Supervision worker: %(workers)s, %(queues)s, %(bodies)s. Ctrl-C or SIGTERM stops it.")
            % {
                "workers": ngettext("%d process", "%d processes", workers) % workers,
                "queues": _("queues %s") % ", ".join(queues) if queues else _("all queues"),
                "bodies": ngettext("%d body", "%d bodies", len(bodies)) % len(bodies),
            }
        )
        if not bodies:
            self.stderr.write(
                self.style.WARNING(
                    _("No body is registered, so no task can run here: put them into an app's supervised.py.")
                )
            )
        self.stdout.flush()


def _count(text: str) -> int:
    try:
        count = int(text)
    except ValueError:
        count = 0
    if count < 1:
        raise ArgumentTypeError(_("“%s” is not a number of processes: give 1 or more.") % text)
    return count


def _show_progress(verbosity: int) -> None:
    """Have our own log records seen, unless the project's LOGGING says what it wants of them."""
    logger, events = logging.getLogger("supervision"), logging.getLogger("supervision.events")
    if logger.level == logging.NOTSET:
        wants_events = events.isEnabledFor(logging.INFO) or verbosity > 1
        logger.setLevel({0: logging.ERROR, 1: logging.INFO}.get(verbosity, logging.DEBUG))
        if not wants_events:  # a line for each take and end: the task's log has them
            events.setLevel(logging.WARNING)
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)


def _keep_connections() -> None:
    """Keep database connections between tasks: django-q2 closes those of CONN_MAX_AGE 0 after each.

    A worker that connects anew for each task needs some ten times as long for a short one.
    """
    for wrapper in connections.all():
        if wrapper.settings_dict["CONN_MAX_AGE"] == 0:
            wrapper.settings_dict["CONN_MAX_AGE"] = 60
            wrapper.settings_dict["CONN_HEALTH_CHECKS"] = True
