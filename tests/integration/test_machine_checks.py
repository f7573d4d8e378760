"""What writes a machine's state without an event is found: in the code, and in the rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.checks import run_checks
from django.db import connection
from django.db.models.expressions import RawSQL
from django.test import override_settings

from project.models import Order
from project.ordering import orders
from supervision.engines import Machine, Transition
from supervision.engines.machines import checking, histories
from tests.integration.machine_work import Ticket, forgetting

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    with forgetting():
        yield


SOURCE = """
from project import models
from project.models import Order
Order.objects.filter(pk=1).update(state="paid")  # found
models.Order._base_manager.exclude(pk=2).update(item="x", state=3)  # found
Order.objects.bulk_update(rows, ["item", "state"])  # found
Order.objects.update_or_create(pk=1, defaults={"state": "x"})  # found
Order.objects.filter(state="paid").update(item="x")
Other.objects.update(state="paid")
row.update(state="paid")
{}.update(state=1)
orders.send(order, "PAY")
"""


def test_code_that_writes_the_state_is_found_by_its_line(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "views.py").write_text(SOURCE)
    (tmp_path / "tests" / "views.py").write_text(SOURCE)
    (tmp_path / "broken.py").write_text("Order.objects.update(state=")
    app: Any = SimpleNamespace(path=str(tmp_path))
    found = checking.check_code([app])
    assert [each.msg.split()[0] for each in found] == [f"{tmp_path / 'views.py'}:{line}" for line in (4, 5, 6, 7)]
    assert {(each.id, bool(each.hint)) for each in found} == {("supervision.W010", True)}
    assert "writes Order.state, which the machine 'order' moves" in found[0].msg
    assert not [each for each in run_checks() if each.id == "supervision.W010"], "this project has none"


def test_rows_that_were_written_without_an_event_are_found() -> None:
    def found() -> list[Any]:
        return [each for each in run_checks(databases=["default"]) if each.id == "supervision.W011"]

    row, _other = (Order.objects.create(reference=name, item="Lamp", amount=80) for name in ("a", "b"))
    orders.send(row, "PAYMENT_AUTHORIZED")
    assert found() == []
    Order.objects.filter(pk=row.pk).update(state="delivered")
    (warning,) = found()
    assert warning.msg.startswith("1 rows of project.Order are in a state that their history doesn't end in")
    assert run_checks() == [], "the database is only asked with --database"
    orders.send(row, "REFUND", actor="service")
    assert found() == []
    assert [entry.event for entry in orders.history(row)] == ["PAYMENT_AUTHORIZED", "", "REFUND"]


def test_a_table_that_takes_too_long_to_look_through_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Order.objects.create(reference="a", item="Lamp", amount=80)
    orders.send(row, "PAYMENT_AUTHORIZED")
    Order.objects.update(state="delivered")
    monkeypatch.setattr(checking, "_PATIENCE_MS", 1)
    slow = Order.objects.annotate(slept=RawSQL("(SELECT pg_sleep(1)::text)", [])).exclude(slept="x")
    monkeypatch.setattr(histories, "written_elsewhere", lambda machine: slow)
    assert checking.check_rows(None, databases=["default"]) == []
    with connection.cursor() as cursor:
        cursor.execute("SHOW statement_timeout")
        assert cursor.fetchone() == ("0",)


class Elsewhere:
    def db_for_write(self, model: Any, **hints: Any) -> str | None:
        return "elsewhere" if model is Ticket else None


def test_a_model_of_another_database_is_an_error() -> None:
    Machine("ticket", model=Ticket, transitions=[Transition("new", "OPEN", "open")])
    with override_settings(DATABASE_ROUTERS=[f"{__name__}.Elsewhere"]):
        (error,) = checking.check_databases(None)
    assert error.id == "supervision.E020"
    assert checking.check_databases(None) == []
