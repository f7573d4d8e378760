"""``manage.py demo``: everything at once, on one machine."""

import os
import secrets
import time
from argparse import ArgumentTypeError
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.core.files.base import File
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error as DatabaseError
from django.db import connections
from django.utils.translation import gettext as _

from project import demo_once, nightly, ordering, retraining
from project.demo_processes import StopSignals, Workers, listening
from project.demo_screen import Screen, summary
from project.normalising import BODY, start_upload
from supervision.errors import SupervisionError
from supervision.kernel.models import Task

ADMINISTRATOR = "demo"
CUSTOMER = "customer"
SAMPLE = Path("project", "data", "customers.csv")
_SAMPLE_KEY = "demo-sample"


class Command(BaseCommand):
    help = _(
        "Runs the demo: database, workers and web server, until Ctrl-C or SIGTERM. With --once FILE.csv it works that "
        "file alone, without a browser, and ends: with status 0, or 1 and the reason on stderr."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--once", type=Path, metavar="FILE.csv", help=_("Normalise the countries of this file."))
        parser.add_argument(
            "--column", default="country", help=_("With --once: the column of the countries. Default: country.")
        )
        parser.add_argument(
            "--answers",
            type=Path,
            metavar="ANSWERS.json",
            help=_('With --once: what a person would answer, as {"name as in the CSV": "alpha-2 code"}.'),
        )
        parser.add_argument(
            "--output",
            type=Path,
            metavar="OUT.csv",
            help=_("With --once: where to write. Default: beside the input, with a longer name."),
        )
        parser.add_argument("--port", type=_port, default=8000, help=_("Of the web server; 0: any. Default: 8000."))
        parser.add_argument(
            "--password",
            default=os.environ.get("DEMO_PASSWORD", ""),
            help=_("Of the demo administrator. Default: the environment's DEMO_PASSWORD, else a random one."),
        )
        parser.add_argument("--workers", type=_count, default=2, metavar="N", help=_("How many. Default: 2."))

    def handle(self, *args: Any, once: Path | None, **options: Any) -> None:
        with _in_one_line(), StopSignals() as signals:
            if once is None:
                self._run(signals, **options)
            else:
                self._run_once(once, signals, **options)

    def _run(self, signals: StopSignals, *, port: int, password: str, workers: int, verbosity: int, **_o: Any) -> None:
        with listening(port) as serve:
            _migrate()
            sign_in, chosen = _administrator(password)
            customer = _customer(chosen)
            is_new = _start_sample(customer)
            if is_new:
                retraining.start_demo()
                ordering.start_demo()
                nightly.start_demo(customer)
            connections.close_all()
            signals.defer()
            with retraining.demo_service(), Workers(workers, signals, verbosity=max(0, verbosity - 1)) as cluster:
                self._greet(serve(), sign_in, is_new)
                while not signals.count:
                    cluster.check()
                    time.sleep(0.1)
                self._say(_("Stopping."))

    def _run_once(self, path: Path, signals: StopSignals, *, column: str, answers: Path | None, output: Path | None,
                  workers: int, **_o: Any) -> None:  # fmt: skip
        known = demo_once.read_answers(answers)
        _migrate()
        task, is_new = demo_once.start_or_continue(path, column=column, output=output)
        screen = Screen(self.stdout)
        screen.say((_("Task %(id)s") if is_new else _("Going on with task %(id)s")) % {"id": task.pk})
        signals.defer()
        with Workers(workers, signals, verbosity=0) as cluster:
            result = demo_once.Once(task, known, screen, signals).follow(cluster)
        self.stdout.write(summary(result))

    def _greet(self, address: str, sign_in: str, is_new: bool) -> None:
        self._say(_("The demo runs at %(address)s") % {"address": self.style.SUCCESS(address)})
        self._say(_("Sign in at %(address)sadmin/ as “%(name)s”, %(how)s.")
                  % {"address": address, "name": ADMINISTRATOR, "how": sign_in})  # fmt: skip
        self._say(_("Whose work it is sees their own pages at %(address)swork/: “%(name)s”, same password.")
                  % {"address": address, "name": CUSTOMER})  # fmt: skip
        if is_new:
            self._say(
                _("A worker is reading %(file)s and will ask about its unclear countries: open the task there, answer, "
                  "and see it end.") % {"file": SAMPLE}
            )  # fmt: skip
            self._say(_("A nightly report counts the orders of %(file)s, and asks whether to publish it.")
                      % {"file": nightly.ORDERS})  # fmt: skip
            self._say(_("A dozen customers' models are retrained by a pipeline, on a fake service that loses jobs."))
        self._say(_("Another file: start a task there, or run manage.py demo --once FILE.csv in a second terminal."))
        self._say(_("Ctrl-C stops everything."))

    def _say(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()


@contextmanager
def _in_one_line() -> Iterator[None]:
    """What can go wrong here for an operator, as one line on stderr and status 1."""
    try:
        yield
    except (SupervisionError, OSError) as error:
        raise CommandError(" ".join(str(error).split())) from error
    except DatabaseError as error:
        raise CommandError(
            _("The database can't be used: %(error)s") % {"error": " ".join(str(error).split())}
        ) from error


def _migrate() -> None:
    call_command("migrate", interactive=False, verbosity=0)


def _administrator(password: str) -> tuple[str, str]:
    """How the demo administrator, made if missing, signs in; and the password, if it is a new one. One that was given
    becomes theirs."""
    users: Any = get_user_model()._default_manager
    user = users.filter(**{get_user_model().USERNAME_FIELD: ADMINISTRATOR}).first()
    if user is None:
        chosen = password or secrets.token_urlsafe(12)
        users.create_superuser(ADMINISTRATOR, "", chosen)
        how = _("with the password you gave") if password else _("password: %(password)s") % {"password": chosen}
        return how, chosen
    if not (user.is_active and user.is_staff and user.is_superuser):
        raise CommandError(
            _("There is a user “%(name)s” who is no administrator: this database is not the demo's.")
            % {"name": ADMINISTRATOR}
        )
    if not password:
        return _("with the password that the first start showed (--password sets another)"), ""
    if not user.check_password(password):
        user.set_password(password)
        user.save(update_fields=["password"])
    return _("with the password you gave"), password


def _customer(password: str) -> Any:
    """The owner of the sample task: no staff, but allowed to answer. A new password of the administrator is theirs."""
    users: Any = get_user_model()._default_manager
    user, is_new = users.get_or_create(
        **{get_user_model().USERNAME_FIELD: CUSTOMER}, defaults={"email": "customer@example.org"}
    )
    if is_new:
        user.user_permissions.add(Permission.objects.get(codename="answer_question"))
    if password:
        user.set_password(password)
        user.save(update_fields=["password"])
    return user


def _start_sample(owner: Any) -> bool:
    """Starts the sample task, once and for all; whether it did."""
    if Task.objects.filter(body=BODY, idempotency_key=_SAMPLE_KEY).exists():
        return False
    with (settings.BASE_DIR / SAMPLE).open("rb") as file:
        start_upload(File(file, SAMPLE.name), column="country", owner=owner, idempotency_key=_SAMPLE_KEY)
    return True


def _port(text: str) -> int:
    if text.isascii() and text.isdigit() and int(text) < 65_536:
        return int(text)
    raise ArgumentTypeError(_("“%s” is no port: give a number from 0 to 65535.") % text)


def _count(text: str) -> int:
    if text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    raise ArgumentTypeError(_("“%s” is not a number of workers: give 1 or more.") % text)
