"""Bodies, people and requests for the tests of the owner's API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from decimal import Decimal
from typing import Any, Literal

from django.contrib.auth.models import User
from django.test import Client

from supervision.engines import Context, Pipeline, Run, State, registry
from supervision.engines.bodies import body
from supervision.kernel.models import Task
from tests.integration.admin_work import Colour

API = "/api/"


@contextmanager
def bodies() -> Iterator[None]:
    """Registers ``api.*``: public ones, one that is not, and a pipeline."""

    @body("api.greet", label="Greet somebody", sensitive=("token",), public=True)
    def greet(task: Context, *, name: str, token: str = "") -> dict[str, str]:
        words = task.ask("words", f"How shall we greet {name}?", choices=["Hello", "Good day"], answerable_by="owner")
        return {"greeting": f"{words}, {name}"}

    @body("api.typed", public=True)
    def typed(
        task: Context,
        *,
        amount: Decimal,
        day: date,
        colour: Colour = Colour.RED,
        size: Literal["small", "large"] = "small",
        count: int = 3,
        tags: list[str] = ["kept"],  # noqa: B006
        urgent: bool = True,
        anything: Any = None,
        who: User | None = None,
    ) -> dict[str, Any]:
        return {"amount": str(amount), "day": day.isoformat(), "colour": colour.name, "size": size, "count": count,
                "tags": tags, "urgent": urgent, "anything": anything, "who": who.pk if who else None}  # fmt: skip

    @body("api.wait", public=True)
    def wait(task: Context) -> Any:
        signal = task.wait_for_signal("paid")
        return signal.payload if signal is not None else None

    @body("api.private")
    def private(task: Context, *, name: str) -> None: ...

    def submit(run: Run) -> bool:
        run.ask("go", "Go on?", kind="yes_no", answerable_by="owner")
        return True

    Pipeline("api.flow", initial="SUBMIT", terminal={"DONE": "completed"}, states={
        "SUBMIT": State(submit, "CHECK", "SUBMIT", False, max_visits=3),
        "CHECK": State(submit, "DONE", "SUBMIT", False, max_visits=3),
    })  # fmt: skip
    names = [each.name for each in registry.bodies() if each.name.startswith("api.")]
    try:
        yield
    finally:
        for name in names:
            registry.unregister(name)


def flow(subject: str, owner: Any) -> Task:
    """A new run of the pipeline ``api.flow``."""
    from supervision.engines import start
    from supervision.engines.pipelines.run import key_of

    return start("api.flow", {}, owner=owner, subject=subject, concurrency_key=key_of("api.flow", subject))


class Caller:
    """A signed-in person's requests; anonymous without one."""

    def __init__(self, user: User | None = None) -> None:
        self.user = user
        self.client = Client(raise_request_exception=True)
        if user is not None:
            self.client.force_login(user)

    def get(self, path: str, **query: Any) -> Any:
        return self.client.get(API + path, query)

    def post(self, path: str, data: Any = None, **headers: str) -> Any:
        body = data if isinstance(data, str | bytes) else json.dumps(data or {})
        return self.client.post(API + path, body, content_type="application/json", headers=headers)


def customer(name: str) -> User:
    return User.objects.create(username=name)
