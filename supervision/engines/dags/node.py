"""Driving one node's child: the function of that name in the code as it now is, with what it waits for handed in."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from supervision.conf import settings
from supervision.engines import steps
from supervision.engines.context import Context
from supervision.engines.dags.definition import takes
from supervision.engines.dags.errors import NodeLost
from supervision.engines.registry import Body
from supervision.engines.steps import Retry
from supervision.errors import Failure, Retrying, StepFailed, SupervisionError
from supervision.kernel import countdown, masking, nodes
from supervision.kernel import lease as leases
from supervision.kernel.models import Task
from supervision.kernel.states import Reason

if TYPE_CHECKING:
    from supervision.engines.dags.dag import Dag


class NodeContext(Context):
    """``task`` in a node's function: all that it is in a body."""

    @property
    def node(self) -> str:
        """The node's name."""
        return str(self.arguments["node"])

    @property
    def run_id(self) -> UUID:
        """The task of the run."""
        return self._run.pk

    def continue_as_new(self, **arguments: Any) -> None:
        raise SupervisionError("A node has no round to close: let a body of its own do the endless work.")

    # --- for the engine

    def open(self) -> Task:
        """The run, whose arguments are the node's to read; its secrets are masked here, too."""
        with self._kernel():
            found = Task.objects.using(settings.DATABASE).filter(children=self.id).first()
        if found is None:
            raise Failure(f"A node of {self.body.removesuffix('/node')!r} is started by its run, and in no other way.")
        self._run = found
        self._taken.sensitive = [*self._taken.sensitive, *found.sensitive]
        hidden = {name: found.arguments[name] for name in found.sensitive if name in found.arguments}
        self._taken.arguments = {**hidden, **self._taken.arguments}
        self._secrets = masking.secrets_of(self._taken.arguments, self._taken.sensitive)
        return found

    def inputs(self, mapped: str) -> dict[str, Any]:
        """The outputs of what the node waits for, as the run has stored it; None of what didn't succeed. The place of
        the list that it is mapped over has its item."""
        with self._kernel():
            found = nodes.inputs(self._run.pk, self.node)
        if mapped in found:
            found[mapped] = self.arguments.get("item")
        return found

    def park_lost(self) -> NodeLost:
        """Parks: the code has no such function. What to raise."""
        self._enter(self.node, is_recorded=False)
        with self._kernel():
            countdown.park_lost(self.id, self._taken.lease, self.node)
        self._end(lost := NodeLost(Reason.UNKNOWN_NODE.of(self.node)))
        return lost

    def attempt(self, work: Callable[[], Any], retry: Retry | None, timeout: float | timedelta | None) -> Any:
        """The function's result. One that fails is tried again in a drive of its own; StepFailed if never again."""
        if retry is None:
            return steps.within(self.node, timeout, work)
        full, call = f"node {self.node}", {"function": self.node, "digest": ""}
        if self._taken.lease > 1:
            self.recorded(full, call)
        try:
            return steps.within(self.node, timeout, work)
        except (StepFailed, Failure):
            raise  # meant, or recorded for good: another attempt would only find it again
        except Exception as error:
            if self.ended is not None or self.unwinding is not None:
                raise
            found = self._replay.get(full)
            delay = self._attempt_failed(full, call, error, 1 + (found.failed_attempts if found else 0), retry)
        self._enter(full, is_recorded=False)
        with self._kernel():
            leases.park(self.id, self._taken.lease, Reason.RETRYING.of(full), wake_after=timedelta(seconds=delay),
                        decisions=self._changed())  # fmt: skip
        raise self._end(Retrying())


class NodeEngine:
    """Interprets the children of one DAG's runs."""

    context = NodeContext
    keeps_steps = True

    def __init__(self, dag: Dag) -> None:
        self.dag = dag

    def run(self, body: Body, context: NodeContext) -> Any:
        run = context.open()
        definition = self.dag.nodes.get(context.node)
        if definition is None or definition.function is None:
            raise context.park_lost()
        arguments = self.dag.body.load_arguments(run.arguments)
        offered = {**arguments, **context.inputs(definition.map_over)}
        work = partial(definition.function, context, **takes(definition.function, offered, first=1))
        return context.attempt(work, definition.retry, definition.timeout)
