"""A machine and a body that change the same orders: the machine's action signals the task, the task sends events."""

from __future__ import annotations

from datetime import timedelta

from project.models import Order
from supervision.engines import Context, Event, Machine, Transition
from supervision.engines.bodies import body
from supervision.kernel import signals_in


def signal_tasks(order: Order, event: Event) -> None:
    """The order is locked; now the tasks are, in the order of their ids."""
    for task in event.payload:
        signals_in.send(task, "poked", by="client")


storm = Machine("storm", model=Order, field="item", protected=False, initial=["Lamp", "slow"], transitions=[
    Transition("Lamp", "TURN", "Lamp"),
    Transition("Lamp", "POKE", "Lamp", action=signal_tasks),
    Transition("slow", "LATE", "done", after=timedelta(seconds=1), action=lambda order: _count(order)),
])  # fmt: skip


@body("storm")
def turn_often(task: Context, *, order_id: int, rounds: int) -> int:
    """Waits for the first signal, then sends so many events in atomic steps."""
    task.wait_for_signal("poked")
    for number in range(rounds):
        task.step("turn", turn, order_id, key=number, atomic=True)
    return rounds


def turn(order_id: int) -> int:
    return storm.send(order_id, "TURN", actor="task").sequence_num


def _count(order: Order) -> None:
    """In the transaction of the event: so often as it happened."""
    order.amount += 1
    order.save(update_fields=["amount"])
