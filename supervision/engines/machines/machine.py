"""A machine: its table, registered under its name, and the verbs on its subjects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from django.core.exceptions import ValidationError
from django.db import models
from django.db.models.signals import post_save
from django.utils.functional import Promise

from supervision.conf import settings
from supervision.engines import registry
from supervision.engines.bodies import BodyEngine
from supervision.engines.machines import sending, timers
from supervision.engines.machines.definition import Hook, Table, Transition, plain
from supervision.engines.machines.errors import InvalidMachine, UnknownMachine
from supervision.engines.machines.hosts import Host, PointerHost, RowHost, choice_faults, field_faults, field_of
from supervision.engines.machines.models import MachineEvent, Standing
from supervision.engines.machines.protection import protect
from supervision.engines.machines.sending import Sent
from supervision.engines.registry import Body
from supervision.kernel.transition import committing


class Machine:
    """``(state, event) -> state`` on a field of a model's rows; or, without ``model``, on a pointer for each subject.

    Registered under ``name`` where it is written: InvalidMachine there tells all that is wrong with it. A subject
    begins in ``initial`` (a state or several; default: the field's default). ``on_exit`` and ``on_enter`` (state ->
    function) are called when a state is left and entered, not by a transition that leads to itself.

    ``protected`` (default) refuses to assign the field, and keeps ``save()`` from writing it; ``QuerySet.update``,
    ``bulk_update`` and SQL can't be kept from it: the check ``supervision.W011`` finds what they did.

    >>> orders = Machine("order", model=Order, field="state", transitions=[
    ...     Transition("pending", "PAYMENT_AUTHORIZED", "paid"),
    ...     Transition(["pending", "paid"], "CANCEL_REQUESTED", "canceled", guard=lambda order: not order.shipped),
    ... ])
    >>> orders.send(order, "PAYMENT_AUTHORIZED", actor=request.user, idempotency_key=webhook_id)
    """

    def __init__(
        self,
        name: str,
        *,
        transitions: Sequence[Transition],
        model: type[models.Model] | None = None,
        field: str = "state",
        initial: str | Sequence[str] = (),
        on_enter: Mapping[str, Hook] | None = None,
        on_exit: Mapping[str, Hook] | None = None,
        protected: bool = True,
        label: str | Promise = "",
    ) -> None:
        column = None if model is None else _column(name, model, field)
        begun = (initial,) if isinstance(initial, str) else tuple(initial)
        if not begun and column is not None:
            begun = tuple(each for each in (column.default, column.db_default) if isinstance(each, str))[:1]
        self.table = Table(name, begun, tuple(transitions), on_enter or {}, on_exit or {})
        self.label = label or name
        self.model = model
        self.field = column
        self.body = f"machine:{name}"
        """The body of its timed events."""
        self._undo: list[Callable[[], Any]] = []
        self.host: Host = PointerHost(name, self.table.initial[0])
        if model is not None and column is not None:
            if faults := list(choice_faults(model, column, self.table)):
                raise InvalidMachine(name, faults)
            self.host = RowHost(name, model, column)
        _register(self)
        if column is not None:
            self._attach(column, protected=protected)

    @property
    def name(self) -> str:
        return self.table.name

    # --- verbs

    def send(
        self,
        subject: Any,
        event: str,
        *,
        actor: Any = None,
        payload: Any = None,
        idempotency_key: str = "",
        expected_generation: int | None = None,
        note: str = "",
        allow: Callable[[Transition], bool] | None = None,
    ) -> MachineEvent:
        """Moves the subject (a row, its key, or the text of a pointer's subject) and returns the entry of its history.

        One transaction, or a savepoint of the caller's: locks the row (NO KEY), looks up the table, asks the guards,
        runs ``on_exit`` and the action, writes state and history, runs ``on_enter``. Hooks get the row as it is under
        the lock. On the object that was passed only the state is set. What raises changes nothing, history included.

        The same ``idempotency_key`` for the same event of the subject is one event: the first entry is returned, with
        ``is_repeated``. ``expected_generation`` is what ``generation`` said when the client looked. Of an ``actor`` who
        is a user the transition's permission is asked; ``allow`` is what a surface asks besides, of the transition that
        is taken: which one that is depends on guards, and they on the payload.

        Raises InvalidTransition, GuardRejected, NotPermitted, SubjectMoved, SubjectNotFound, SubjectBusy, Tangled,
        WrongDatabase, NotStorable, TooLarge, and what hooks raise.
        """
        sent = Sent(plain(event), actor, payload, idempotency_key, expected_generation, note, allow=allow)
        return sending.send(self, subject, sent)

    def send_timed(self, subject: Any, event: str, timer: int) -> MachineEvent:
        """The event of a timer: for the body of timers. Raises TimerOver, too."""
        return sending.send(self, subject, Sent(event, actor="timer", timer=timer))

    def begin(self, subject: Any, *, wait: float | None = None) -> Standing:
        """Puts the subject's standing down without an event: so its time runs. ``send`` and ``save`` do it themselves;
        a pointer that should time out before its first event needs it, and so do rows of ``bulk_create`` at once.
        ``wait`` seconds for its locks at most (default: LOCK_TIMEOUT_SECONDS), then SubjectBusy."""
        with committing("begin"), sending.locked(self, self.host.key(subject), wait=wait) as (_row, standing):
            timers.arm(self, standing, entered=False)
        return standing

    # --- reading

    def standing(self, subject: Any) -> Standing | None:
        """The row that says where its history ends; None before its first event."""
        rows = Standing.objects.using(settings.DATABASE).with_clock()
        return rows.filter(machine=self.name, subject=self.host.key(subject)).first()

    def state(self, subject: Any) -> str:
        """Where the subject is. Raises SubjectNotFound."""
        key = self.host.key(subject)
        return self.host.state(self.host.read(key), self.standing(subject))

    def generation(self, subject: Any) -> int:
        """The number of its newest event; 0 before the first."""
        standing = self.standing(subject)
        return standing.generation if standing else 0

    def history(self, subject: Any) -> models.QuerySet[MachineEvent]:
        """Its events, oldest first. Also of a row that is gone, by its key."""
        key = self.host.key(subject)
        entries = MachineEvent.objects.using(settings.DATABASE).order_by("sequence_num")
        return entries.filter(standing__machine=self.name, standing__subject=key)

    def allowed_events(self, subject: Any, user: Any = None) -> list[str]:
        """The events that would be accepted now: in the table, let through by a guard, and, where a ``user`` is given,
        permitted to them. In the order of the table. Nothing is locked: ``send`` has the last word."""
        return list(self.offered(subject, user))

    def offered(self, subject: Any, user: Any = None) -> dict[str, Transition]:
        """The same with the transition that each event would take."""
        key = self.host.key(subject)
        row = self.host.read(key)
        return sending.offered(self, row, self.host.state(row, self.standing(key)), user)

    def stand_in(self, key: str) -> models.Model | None:
        """An unsaved object that says which row a task is about."""
        if self.model is None:
            return None
        try:
            return self.model(pk=self.model._meta.pk.to_python(key))
        except ValidationError:  # the kind of the key was changed by a deploy
            return None

    # --- wiring

    def _attach(self, column: models.Field[Any, Any], *, protected: bool) -> None:
        if protected:
            self._undo.append(protect(self.name, column.model, column))
        if self.table.timed_states:
            started = partial(_started, self)
            post_save.connect(started, weak=False)
            self._undo.append(lambda: post_save.disconnect(started))


def _column(name: str, model: type[models.Model], field: str) -> models.Field[Any, Any]:
    """The field, if it can be a machine's and is none's yet. Raises InvalidMachine."""
    faults = list(field_faults(model, field))
    column = None if faults else field_of(model, field)
    if column is not None:
        faults = [f"the machine {other.name!r} moves {model._meta.label}.{field} already"
                  for other in of_model(model) if other.field is column]  # fmt: skip
    if faults or column is None:
        raise InvalidMachine(name, faults)
    return column


_machines: dict[str, Machine] = {}


def get(name: str) -> Machine:
    """The registered machine of that name. Raises UnknownMachine."""
    try:
        return _machines[name]
    except KeyError:
        raise UnknownMachine(name, sorted(_machines)) from None


def machines() -> dict[str, Machine]:
    """Name -> machine, of all that are registered in this process."""
    return dict(sorted(_machines.items()))


def of_model(model: type[models.Model]) -> list[Machine]:
    """Those that move rows of the model."""
    concrete = model._meta.concrete_model
    found = [each for each in machines().values() if each.model is not None]
    return [each for each in found if each.model._meta.concrete_model is concrete]  # type: ignore[union-attr]


def unregister(name: str) -> None:
    """Takes a machine out again, with its protection: for tests."""
    machine = _machines.pop(name, None)
    if machine is not None:
        registry.unregister(machine.body)
        for undo in reversed(machine._undo):
            undo()


def _register(machine: Machine) -> None:
    if machine.name in _machines:
        raise InvalidMachine(machine.name, ["another machine of this name is registered already"])
    _machines[machine.name] = machine
    if machine.table.timed_states:

        def timed_event(task: Any, *, subject: str, event: str, timer: int) -> Any:
            fire = partial(timers.fire, machine)
            return task.step("fire", fire, subject, event, timer, atomic=True, retry=timers.RETRY)

        registry.register(
            Body(name=machine.body, function=timed_event, engine=BodyEngine(), label=f"{machine.label}: timed event")
        )


def _started(machine: Machine, sender: Any, instance: Any, created: bool, raw: bool, using: str, **_kw: Any) -> None:
    """A new row begins, perhaps in a state with timers."""
    column = machine.field
    if column is None or not created or raw or using != settings.DATABASE or not isinstance(instance, column.model):
        return
    if getattr(instance, column.attname) in machine.table.timed_states:
        machine.begin(instance)
