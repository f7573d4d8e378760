"""Bodies for the tests of the owner's pages and links."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from supervision.engines import Ask, Context, Retry, registry
from supervision.engines.bodies import body

SIZES = ["small", "large"]


@contextmanager
def own_bodies() -> Iterator[None]:
    """Registers the bodies ``own.*``."""

    @body("own.order", label="An order", sensitive=("token",))
    def order(task: Context, *, what: str, token: str = "", options: dict[str, Any] = {}) -> Any:  # noqa: B006
        """Asks its owner."""
        size = task.ask("size", f"How much {what}? {token}", choices=SIZES, **{"answerable_by": "owner", **options})
        return {"size": size}

    @body("own.both")
    def both(task: Context) -> Any:
        asks = [Ask("one", "What first?", answerable_by="owner"), Ask("two", "What second?", answerable_by="owner")]
        return task.ask_all(asks)

    @body("own.evil")
    def evil(task: Context, *, text: str) -> Any:
        """The text wherever a text may stand."""
        task.log(text, data=text)
        task.step(text[:100], str, text)
        said = task.ask_all(
            [
                Ask("text", text, help=text, answerable_by="owner"),
                Ask("choice", text, choices={"a": text, "b": "b"}, answerable_by="owner"),
            ]
        )
        return {"said": said, text[:50]: text}

    @body("own.family")
    def family(task: Context) -> Any:
        return task.map("own.order", [{"what": what} for what in ("bread", "butter")])

    @body("own.verify", label="Verify")
    def verify(task: Context, *, urls: list[str] = [], flaky: bool = False) -> Any:  # noqa: B006
        """Hands out an address, and waits until somebody posts to it."""
        task.step("mail", _hand_out, task)
        signal = task.wait_for_signal("verified")
        if flaky:
            task.step("after", _fail, retry=Retry(attempts=1))
        return {"verified": None if signal is None else signal.payload}

    names = [each.name for each in registry.bodies() if each.name.startswith("own.")]
    try:
        yield
    finally:
        HANDED_OUT.clear()
        for name in names:
            registry.unregister(name)


HANDED_OUT: list[str] = []
"""The addresses that ``own.verify`` has handed out."""


def _hand_out(task: Context) -> None:
    HANDED_OUT.append(task.signal_url("verified"))


def _fail() -> None:
    raise OSError("no route")
