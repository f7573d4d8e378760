"""A nightly report of a day's orders, as a DAG: read and clean once, then count by country and product side by side,
while a person is asked whether to publish although some orders were rejected.

>>> nightly_report.start({"day": "2026-05-04"})
"""

from __future__ import annotations

import csv
from collections import Counter
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.files.base import ContentFile
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from supervision.engines import Context, Dag, Failure, Retry, store
from supervision.kernel.models import Task

ORDERS = Path("project", "data", "orders.csv")
DAY = "2026-05-04"
"""One that the sample data has."""

nightly_report = Dag("nightly_report", label=_("Nightly report"), max_parallel=4)


@nightly_report.node(retry=Retry(attempts=3))
def extract(task: Context, *, day: str = DAY) -> list[dict[str, str]]:
    """The day's orders as they stand in the file."""
    with (settings.BASE_DIR / ORDERS).open(newline="") as file:
        found = [row for row in csv.DictReader(file) if row["day"] == day]
    if not found:
        raise Failure(_("There are no orders of %(day)s in %(file)s.") % {"day": day, "file": ORDERS})
    return found


@nightly_report.node(after=[extract], timeout=600)
def clean(task: Context, *, extract: list[dict[str, str]]) -> dict[str, Any]:
    """Orders with amounts in cents, and those that can't be read, with why."""
    orders, rejected = [], []
    for row in extract:
        try:
            orders.append(_order(row))
        except (ValueError, InvalidOperation) as error:
            rejected.append({"order": row["order_id"], "why": str(error)})
    return {"orders": orders, "rejected": rejected}


@nightly_report.node(after=[clean], required=False, when=lambda outputs: len(outputs["clean"]["rejected"]) > 2)
def warn(task: Context, *, clean: dict[str, Any]) -> None:
    """For the log of the morning after."""
    for each in clean["rejected"]:
        task.log(f"{each['order']}: {each['why']}")


@nightly_report.node(after=[clean])
def approve(task: Context, *, clean: dict[str, Any]) -> str:
    """Parks this branch alone until a person has answered."""
    rejected = len(clean["rejected"])
    if not rejected:
        return ""
    prompt = ngettext(
        "%(n)s order of %(all)s was rejected. Publish the report all the same?",
        "%(n)s orders of %(all)s were rejected. Publish the report all the same?",
        rejected,
    ) % {"n": rejected, "all": rejected + len(clean["orders"])}
    if not task.ask("publish", prompt, kind="yes_no"):
        raise Failure(_("Somebody decided not to publish it."))
    return prompt


@nightly_report.node(after=[clean], inline=True)
def countries(task: Context, *, clean: dict[str, Any]) -> list[dict[str, Any]]:
    """What ``revenue`` is mapped over: so small that the run does it itself."""
    orders: dict[str, list[int]] = {}
    for order in clean["orders"]:
        orders.setdefault(order["country"], []).append(order["cents"])
    return [{"country": country, "cents": orders[country]} for country in sorted(orders)]


@nightly_report.node(after=[countries], map_over=countries)
def revenue(task: Context, *, countries: dict[str, Any]) -> dict[str, Any]:
    """Of one country."""
    return {"country": countries["country"], "orders": len(countries["cents"]), "cents": sum(countries["cents"])}


@nightly_report.node(after=[clean])
def best_sellers(task: Context, *, clean: dict[str, Any]) -> list[list[Any]]:
    """The three products that sold most pieces."""
    pieces = Counter[str]()
    for order in clean["orders"]:
        pieces[order["product"]] += order["quantity"]
    return [[product, count] for product, count in sorted(pieces.items(), key=lambda item: (-item[1], item[0]))[:3]]


@nightly_report.node(after=[clean, revenue, best_sellers, approve])
def publish(task: Context, *, day: str = DAY, clean: dict[str, Any], revenue: list[Any], best_sellers: list[Any],
            approve: str) -> dict[str, Any]:  # fmt: skip
    """The report as a text file, which the run's page offers."""
    lines = [f"Orders of {day}", ""]
    lines += [f"  {each['country']}  {each['orders']:>3}  {_money(each['cents']):>9} EUR" for each in revenue]
    total = sum(each["cents"] for each in revenue)
    lines += [f"      {len(clean['orders']):>3}  {_money(total):>9} EUR", "", "Best sellers"]
    lines += [f"  {product:<8} {count:>3}" for product, count in best_sellers]
    if clean["rejected"]:
        lines += ["", "Rejected"]
        lines += [f"  {each['order']}  {each['why']}" for each in clean["rejected"]]
    text = "\n".join(lines) + "\n"
    stored = store(ContentFile(text.encode(), f"orders-{day}.txt"))
    return {"text": text, "file": stored.reference}


def start_demo(owner: Any) -> Task:
    """For ``manage.py demo``."""
    return nightly_report.start({"day": DAY}, owner=owner, idempotency_key=f"demo-{DAY}")


def _order(row: dict[str, str]) -> dict[str, Any]:
    if not row["country"]:
        raise ValueError("no country")
    if not row["quantity"].isdecimal():
        raise ValueError(f"quantity {row['quantity']!r} is no number of pieces")
    quantity = int(row["quantity"])
    cents = int(Decimal(row["unit_price"]) * 100) * quantity
    return {"country": row["country"], "product": row["product"], "quantity": quantity, "cents": cents}


def _money(cents: int) -> str:
    return f"{cents // 100:,}.{cents % 100:02}"
