"""Whether work is being done: ``manage.py supervision_health``, for systemd, Kubernetes and monitoring."""

import json
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import Error as DatabaseError
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from supervision.worker import health
from supervision.worker.health import Finding, Limits, Report, Severity
from supervision.worker.metrics import exposition


class Command(BaseCommand):
    help = _(
        "Says whether supervised work is being done, and if not, why. Exit status: 0 healthy, 1 a person should look "
        "(a cluster was killed, dead letters, a backlog), 2 work is not being done (no cluster, frozen, unknown body, "
        "late tick, stuck tasks, no database)."
    )
    requires_system_checks = ()  # a monitor asks often, and asks for the state of the work

    def add_arguments(self, parser: CommandParser) -> None:
        limits = Limits.from_settings()
        parser.add_argument("--json", action="store_true", dest="as_json", help=_("Print one JSON object."))
        parser.add_argument(
            "--prometheus", action="store_true",
            help=_("Print metrics in Prometheus's text format instead, for a textfile collector (extra: prometheus)."),
        )  # fmt: skip
        parser.add_argument(
            "--late", type=float, metavar=_("SECONDS"), default=limits.late.total_seconds(),
            help=_("From when on a cluster, a tick, a due task or an expiry is late. Default: %(default)g."),
        )  # fmt: skip
        parser.add_argument(
            "--backlog", type=float, metavar=_("SECONDS"), default=limits.backlog.total_seconds(),
            help=_("From when on due tasks are a backlog while all workers are busy. Default: %(default)g."),
        )  # fmt: skip
        parser.add_argument(
            "--dead-letters", type=int, metavar=_("N"), default=limits.dead_letters,
            help=_("How many new dead letters an hour are no finding yet. Default: %(default)d."),
        )  # fmt: skip
        parser.add_argument("--only-critical", action="store_true", help=_("Let warnings be: exit with 0 or 2."))

    def handle(self, *args: Any, as_json: bool, late: float, backlog: float, dead_letters: int, only_critical: bool,
               prometheus: bool, **options: Any) -> None:  # fmt: skip
        if prometheus:
            self.stdout.write(exposition(), ending="")
            return
        limits = Limits(timedelta(seconds=late), timedelta(seconds=backlog), dead_letters)
        report: Report | None = None
        try:
            report = health.report(limits)
            findings = report.findings
        except DatabaseError as error:
            findings = [_unreachable(error)]
        if only_critical:
            findings = [finding for finding in findings if finding.severity >= Severity.CRITICAL]
        status = max((finding.severity for finding in findings), default=0)
        self.stdout.write(_as_json(report, findings, status) if as_json else self._as_text(report, findings))
        if status:
            raise SystemExit(int(status))

    def _as_text(self, report: Report | None, findings: list[Finding]) -> str:
        lines = []
        for finding in findings:
            is_grave = finding.severity >= Severity.CRITICAL
            word = self.style.ERROR(_("CRITICAL")) if is_grave else self.style.WARNING(_("WARNING"))
            lines.append(f"{word} {finding.message}")
        if report is not None:
            for cluster in report.clusters:
                lines.append(f"{_describe(cluster)}")
        if not findings:
            lines.insert(0, self.style.SUCCESS(_("Healthy.")))
        return "\n".join(lines)


def _describe(cluster: Any) -> str:
    workers = ngettext("%d worker", "%d workers", cluster.workers) % cluster.workers
    free = _("free: unknown") if cluster.free is None else _("%d free") % cluster.free
    queues = _("all queues") if cluster.queues is None else ", ".join(cluster.queues)
    return f"{cluster}: {workers}, {free}, {queues}"


def _unreachable(error: DatabaseError) -> Finding:
    message = _("The database can't be asked: %(error)s") % {"error": " ".join(str(error).split())}
    return Finding("database", Severity.CRITICAL, message)


def _as_json(report: Report | None, findings: list[Finding], status: int) -> str:
    return json.dumps(
        {
            "status": int(status),
            "findings": [
                {"check": each.check, "severity": each.severity.name.lower(), "message": each.message, **each.facts}
                for each in findings
            ],
            "clusters": [
                {"cluster": str(each), "workers": each.workers, "free": each.free, "queues": each.queues}
                for each in (report.clusters if report else [])
            ],
        }
    )
