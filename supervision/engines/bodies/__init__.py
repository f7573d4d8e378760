"""Checkpointed bodies: an ordinary function, driven from its start each time, that skips ahead by what is durable."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from django import forms

from supervision.engines import registry
from supervision.engines.bodies.asynchronous import AsyncBodyEngine
from supervision.engines.context import Context
from supervision.engines.forms import AUTO, Auto, check_form, form_from, hints_of
from supervision.engines.registry import Body
from supervision.kernel.limits import Limit

F = TypeVar("F", bound=Callable[..., Any])


class BodyEngine:
    """Calls the function with the context and the task's arguments; its return value is the task's result."""

    context = Context
    keeps_steps = True

    def run(self, body: Body, context: Context) -> Any:
        return body.function(context, **body.load_arguments(context.arguments))


def body(
    name: str,
    *,
    version: int = 1,
    queue: str = "default",
    priority: int = 5,
    expires_after: timedelta | None = None,
    sensitive: Sequence[str] = (),
    label: str = "",
    compatible_with: Collection[int] = (),
    form: type[forms.Form] | Auto | None = AUTO,
    public: bool = False,
    max_running: int | None = None,
    at_most: int | None = None,
    per: timedelta | None = None,
) -> Callable[[F], F]:
    """Registers a function as the body ``name``; the function itself stays an ordinary one.

    Its first parameter is the context, the others are the task's arguments, checked when a task is created.
    ``version`` grows when running tasks can't go on with the new code; those of the versions in ``compatible_with`` do,
    others park for an operator's word. ``queue`` is the lane of workers, ``priority`` 0
    runs first and 9 last. ``sensitive`` names arguments that every reader masks. ``label`` is shown to people.
    ``form`` is what a person fills in to start one: made from the annotations (TypeError for one that has no field),
    a Django form whose fields are the parameters, or None for a body that only code starts. Arguments arrive as the
    annotations say, although they are JSON in between. ``public`` lets any user start one of their own, by the owner's
    API; it needs a form.

    ``max_running`` of its tasks run at once, and ``at_most`` of their drives start in any stretch of ``per``, over all
    workers and hosts; the others wait as ``awaiting_slot``. A parked task holds no slot.

    >>> @body("greet", expires_after=timedelta(days=7))
    ... def greet(task, *, name: str):
    ...     return {"greeting": task.ask("words", f"How shall we greet {name}?")}
    """

    def decorate(function: F) -> F:
        parameters = list(inspect.signature(function).parameters)
        if not parameters:
            raise TypeError(f"Body {name!r} takes no parameter; the first one is the task's context.")
        unknown = [each for each in sensitive if each not in parameters[1:]]
        if unknown:
            raise TypeError(f"Body {name!r} has no parameter {', '.join(unknown)}, which sensitive= names.")
        if not 0 <= priority <= 9:
            raise ValueError(f"Body {name!r} has priority {priority}; it must be from 0 to 9.")
        its_form = form
        if its_form is AUTO:
            its_form = form_from(name, function, tuple(sensitive))
        elif its_form is not None:
            check_form(name, function, its_form)
        if public and its_form is None:
            raise TypeError(f"Body {name!r} is public and has no form: what people send must be checked by one.")
        limit = Limit(max_running=max_running, at_most=at_most, per=per)
        engine = AsyncBodyEngine() if inspect.iscoroutinefunction(function) else BodyEngine()
        registry.register(
            Body(
                name=name, function=function, engine=engine, version=version, queue=queue, priority=priority,
                expires_after=expires_after, sensitive=tuple(sensitive), label=label or name,
                compatible_with=frozenset(compatible_with), form=its_form, hints=hints_of(function),
                public=public,
                limit=limit or None,
            )
        )  # fmt: skip
        return function

    return decorate
