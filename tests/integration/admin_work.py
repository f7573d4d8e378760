"""Bodies and people for the tests of the control room."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from decimal import Decimal
from typing import Any, Literal

from django import forms
from django.contrib.auth.models import Group, Permission, User
from django.core.files.base import ContentFile

from supervision.engines import Ask, Context, Failure, StoredFile, question_form, registry, store
from supervision.engines.bodies import body
from supervision.kernel.models import Question, Task

EVIL = '<script>alert("x")</script> javascript:alert(1) \u202egnp.exe'


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@question_form("admin.delivery")
class DeliveryForm(forms.Form):
    day = forms.DateField()
    items = forms.IntegerField(min_value=1)


@contextmanager
def bodies() -> Iterator[None]:
    """Registers the bodies ``admin.*``."""

    @body("admin.greet", label="Greet somebody", sensitive=("token",))
    def greet(task: Context, *, name: str, token: str = "") -> dict[str, str]:
        """Asks how to greet, then greets."""
        words = task.ask("words", f"How shall we greet {name}?", choices=["Hello", "Good day"])
        return {"greeting": f"{words}, {name}"}

    @body("admin.approve")
    def approve(task: Context, *, options: dict[str, Any] = {}) -> Any:  # noqa: B006
        return task.ask("approve", "May we spend 400 EUR?", kind="yes_no", **options)

    @body("admin.ask")
    def ask(task: Context, *, options: dict[str, Any]) -> Any:
        return task.ask("it", "What is it?", **options)

    @body("admin.fail")
    def fail(task: Context, *, why: str = "It failed.") -> None:
        raise Failure(why)

    @body("admin.typed")
    def typed(
        task: Context,
        *,
        amount: Decimal,
        day: date,
        colour: Colour,
        size: Literal["small", "large"] = "small",
        owner: User | None = None,
        tags: list[str] = [],  # noqa: B006
        urgent: bool = False,
        upload: StoredFile | None = None,
    ) -> dict[str, Any]:
        seen: dict[str, Any] = {
            "amount": type(amount).__name__,
            "day": type(day).__name__,
            "colour": colour.name,
            "size": size,
            "owner": owner.get_username() if owner else None,
            "tags": tags,
            "urgent": urgent,
        }
        if upload is not None:
            with upload.open() as opened:
                seen["upload"] = opened.read().decode()
            seen["copy"] = store(ContentFile(b"copied", name="copy.txt")).reference
        return seen

    @body("admin.import", label="Import a file")
    def import_file(task: Context, *, upload: StoredFile, rows: int = 4) -> dict[str, Any]:
        """Reads a file, and asks which column it is about."""
        with upload.open() as opened:
            columns = opened.readline().decode().strip().split(",")
        column = task.ask("column", "Which column is it about?", choices=columns)
        for row in range(task.decisions.get("row", 0), rows):
            task.progress(row + 1, rows, "rows")
            task.checkpoint(row=row + 1)
        copy = store(ContentFile(column.encode(), name="column.txt"))
        return {"column": column, "output": copy.reference}

    @body("admin.both")
    def both(task: Context) -> Any:
        return task.ask_all([Ask("one", "What comes first?"), Ask("two", "What comes second?")])

    @body("admin.code_only", form=None)
    def code_only(task: Context, *, thing: object = None) -> None: ...

    names = [each.name for each in registry.bodies() if each.name.startswith("admin.")]
    try:
        yield
    finally:
        for name in names:
            registry.unregister(name)


def person(name: str, *codenames: str, staff: bool = True, groups: tuple[str, ...] = ()) -> User:
    user = User.objects.create(username=name, is_staff=staff)
    found = Permission.objects.filter(content_type__app_label="supervision", codename__in=codenames)
    assert len(found) == len(codenames), codenames
    user.user_permissions.set(found)
    user.groups.set([Group.objects.get_or_create(name=group)[0] for group in groups])
    return user


def fresh(task: Task) -> Task:
    return Task.objects.get(pk=task.pk)


def pending(task: Task) -> Question:
    return Question.objects.filter(task=task).pending().get()
