# ruff: noqa: DJ008
"""Models and tables for the tests of machines. The models belong to no installed app; their tables live for a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from django.contrib.contenttypes.models import ContentType
from django.db import connection, models

from supervision.engines.machines import machine
from supervision.engines.machines.models import MachineEvent


class Ticket(models.Model):
    state = models.CharField(max_length=20, default="new")
    text = models.CharField(max_length=50, default="")
    is_locked = models.BooleanField(default=False)
    objects: ClassVar[models.Manager[Any]] = models.Manager()

    class Meta:
        app_label = "machine_tests"


class Urgent(Ticket):
    """Multi-table inheritance, with a state of its own beside the parent's."""

    escalation = models.CharField(max_length=20, default="none")
    objects: ClassVar[models.Manager[Any]] = models.Manager()

    class Meta:
        app_label = "machine_tests"


class Seen(Ticket):
    objects: ClassVar[models.Manager[Any]] = models.Manager()

    class Meta:
        app_label = "machine_tests"
        proxy = True

    def shout(self) -> str:
        return self.text.upper()


class Key(models.Model):
    id = models.UUIDField(primary_key=True)
    state = models.CharField(max_length=20, default="new")
    kind = models.CharField(max_length=20, db_default="plain")
    objects: ClassVar[models.Manager[Any]] = models.Manager()

    class Meta:
        app_label = "machine_tests"


class Dated(models.Model):
    """A key whose text isn't one."""

    day = models.DateTimeField(primary_key=True)
    state = models.CharField(max_length=20, default="new")

    class Meta:
        app_label = "machine_tests"


class Abstract(models.Model):
    state = models.CharField(max_length=20, default="new")

    class Meta:
        app_label = "machine_tests"
        abstract = True


class Odd(models.Model):
    """Fields that a state can't live in."""

    maybe = models.CharField(max_length=20, null=True, default="new")  # noqa: DJ001
    number = models.IntegerField(default=0)
    short = models.CharField(max_length=2, default="new")
    chosen = models.CharField(max_length=20, default="new", choices=[("new", "New"), ("old", "Old")])
    bare = models.CharField(max_length=20)
    other = models.ForeignKey(Key, on_delete=models.CASCADE)

    class Meta:
        app_label = "machine_tests"


@contextmanager
def tables() -> Iterator[None]:
    """The models' tables."""
    ContentType.objects.clear_cache()  # of these models each test makes its own
    with connection.schema_editor() as editor:
        for model in (Ticket, Urgent, Key):
            editor.create_model(model)
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")  # what is pending keeps a table from being dropped
        with connection.schema_editor() as editor:
            for model in (Key, Urgent, Ticket):
                editor.delete_model(model)


@contextmanager
def forgetting() -> Iterator[None]:
    """Takes out what was registered within."""
    before = set(machine.machines())
    try:
        yield
    finally:
        for name in set(machine.machines()) - before:
            machine.unregister(name)


def path(name: str, subject: Any) -> list[tuple[str, str, str]]:
    """(source, event, target) of a history, oldest first."""
    entries = MachineEvent.objects.filter(standing__machine=name, standing__subject=str(subject))
    return list(entries.order_by("sequence_num").values_list("source", "event", "target"))


def assert_sound(name: str, subject: Any, *, begun: str) -> None:
    """The history is a path of the table, numbered without a gap, and the state is its end."""
    found = machine.get(name)
    rows = list(MachineEvent.objects.filter(standing__machine=name, standing__subject=str(subject))
                .order_by("sequence_num"))  # fmt: skip
    assert [row.sequence_num for row in rows] == list(range(1, len(rows) + 1))
    at = begun
    for row in rows:
        assert row.source == at
        assert row.target in {each.target for each in found.table.rows[at, row.event]}
        at = row.target
    assert found.state(subject) == at
    assert found.generation(subject) == len(rows)
