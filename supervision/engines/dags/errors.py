"""What can go wrong with DAGs, and what ends their drives."""

from __future__ import annotations

from collections.abc import Sequence

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from supervision.errors import Failure, SupervisionError, Suspended
from supervision.kernel.states import Reason


class InvalidDag(SupervisionError):
    """A definition that can't work; raised where it is written, at import. For its author, so it isn't translated."""

    def __init__(self, name: object, fault: str) -> None:
        self.fault = fault
        super().__init__(f"The DAG {name!r} can't work: {fault}.")


class NodesFailed(Failure):
    """Every node is over, and some that the run requires have failed."""

    def __init__(self, failed: Sequence[tuple[str, str]], *, succeeded: int, skipped: Sequence[str]) -> None:
        self.stop_reason = Reason.NODES_FAILED.of(", ".join(name for name, _why in failed)[:300])
        said = "; ".join(f"{name}: {why.rstrip('.')}" for name, why in failed[:5])
        head = ngettext("%(n)s node failed", "%(n)s nodes failed", len(failed)) % {"n": len(failed)}
        tail = _("Succeeded: %(done)s; skipped: %(skipped)s") % {"done": succeeded, "skipped": len(skipped)}
        named = f" ({', '.join(skipped[:20])})" if skipped else ""
        super().__init__(f"{head}: {said}. {tail}{named}.")


class Stuck(Failure):
    """Nothing runs, and nothing can: the stored structure doesn't fit together."""

    def __init__(self, waiting: Sequence[tuple[str, Sequence[str]]]) -> None:
        self.stop_reason = Reason.NO_PROGRESS.value
        said = "; ".join(f"{name} ← {', '.join(others) or '?'}" for name, others in waiting[:20])
        super().__init__(_("No node can go on. Who waits for what: %(said)s") % {"said": said})


class NodeLost(Suspended):
    """Parked: a node's function is gone from the code. An operator deploys it again and resumes."""
