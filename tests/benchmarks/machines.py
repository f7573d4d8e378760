"""Events of a machine, beside the same by hand: lock the row, save it, insert a row of a history, with Django's ORM."""

from collections.abc import Iterator

from django.db import transaction

from tests.benchmarks.run import Figure
from tests.benchmarks.turns import in_turns

COUNT = 300


def measure() -> Iterator[Figure]:
    from project.models import Order
    from supervision.engines import Machine, Transition
    from supervision.engines.machines.models import MachineEvent, Standing
    from supervision.testing import prune_all

    turns = Machine("bench", model=Order, field="item", transitions=[
        Transition("Lamp", "TURN", "Desk"), Transition("Desk", "TURN", "Lamp"),
    ], initial="Lamp")  # fmt: skip
    ours, theirs = (Order.objects.create(reference=name, item="Lamp", amount=1) for name in ("ours", "theirs"))
    by_hand = Standing.objects.create(machine="by hand", subject="x", state="Lamp")
    numbers = iter(range(1, 10**9))

    def send(count: int) -> None:
        for _ in range(count):
            turns.send(ours.pk, "TURN", payload={"n": 1})

    def write(count: int) -> None:
        for _ in range(count):
            with transaction.atomic():
                row = Order.objects.select_for_update(no_key=True).get(pk=theirs.pk)
                row.stock_reserved = not row.stock_reserved
                row.save(update_fields=["stock_reserved"])
                MachineEvent.objects.create(standing=by_hand, sequence_num=next(numbers), event="TURN", source="a",
                                            target="b", payload={"n": 1})  # fmt: skip

    rate, floor, ratio = in_turns(send, write, count=COUNT)
    yield Figure("machines", "events of one row", rate, "1/s", ratio, "by hand with the ORM")
    yield Figure("machines", "by hand with the ORM", floor, "1/s")
    prune_all()
