"""At most once: the intention first, then the work, then the record; what lies between is a person's to settle."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.utils.translation import gettext as _

from supervision.engines.replay import Recorded, Replay
from supervision.errors import Failure, StepFailed, StepTimedOut
from supervision.kernel import lease as leases
from supervision.kernel import log, storable


class AtMostOnce:
    """The part of ``Context`` that runs ``once=True`` steps. Mixed into it; see there for what it stands on."""

    _taken: leases.Taken
    _replay: Replay
    _scope: str
    _kernel: Any
    _write: Callable[..., None]
    _call: Callable[..., Any]
    _completed: Callable[..., Any]
    _failed: Callable[..., StepFailed]
    _raise_if_lost: Callable[[Exception], None]
    ask: Callable[..., Any]

    def _once(
        self,
        full: str,
        found: Recorded | None,
        call: dict[str, str],
        work: Callable[[], Any],
        timeout: float | timedelta | None,
    ) -> Any:
        """Intention, work, record. An intention without a record is uncertain, and a person's to settle; each "run it"
        is a new intention, on that person's authority."""
        intentions = len(found.intentions) if found else 0
        begun_by = self._replay.payload(found.intentions[-1])["worker"] if found and found.intentions else ""
        while True:
            if begun_by:
                verdict, result = self._settle(full, call, intentions, begun_by)
                if verdict == "happened":
                    return self._completed(full, call, result)
            intentions += 1
            begun_by = self._taken.worker
            intention = {**call, "intention": intentions, "worker": begun_by}
            self._write("step_intended", full, storable.encode(intention, place=full, limit="MAX_PAYLOAD_BYTES"))
            try:
                return self._completed(full, call, self._call(full, work, timeout))
            except StepTimedOut:
                continue  # it may have happened all the same: the same question as after a death
            except Exception as error:
                self._raise_if_lost(error)
                raise self._failed(full, call, error, intentions) from error

    def _settle(self, full: str, call: dict[str, str], intention: int, begun_by: str) -> tuple[str, Any]:
        """What a person says of an uncertain step: ("happened", its result) or ("run", None). Parks until they have;
        raises StepFailed when they give up."""
        verdict = self.ask(
            self._uncertain(full, intention),
            _("Step “%(step)s” may happen only once, and it isn't known whether it did. What do you know?")
            % {"step": full},
            choices={
                "none": _("It happened, and has no result"),
                "happened": _("It happened, and I know its result (asked next)"),
                "run": _("It did not happen: run it now"),
                "give_up": _("Give up: the step has failed"),
            },
            help=_("Begun by %(worker)s (attempt %(n)s), whose end was not recorded. %(beat)s")
            % {"worker": begun_by, "n": intention, "beat": self._last_beat()},
        )
        if verdict == "give_up":
            given_up = Failure(_("A person gave up on it: its outcome is uncertain."))
            raise self._failed(full, {**call, "uncertain": "yes"}, given_up, intention)
        if verdict != "happened":
            return ("run", None) if verdict == "run" else ("happened", None)
        return "happened", self.ask(
            self._uncertain(full, intention, "result"),
            _("What is the result of step “%(step)s”?") % {"step": full},
            kind="json",
            help=_('As JSON, for example 42 or {"id": 7}.'),
        )

    def _uncertain(self, full: str, intention: int, *more: str) -> str:
        """The key of a question about this intention and no other: rounds of ``continue_as_new`` count their
        intentions from 1 again, but the task's questions stay; and names may be longer than keys."""
        rounds = [f"round {self._taken.round}"] if self._taken.round else []
        key = ":".join(["uncertain", full.removeprefix(self._scope), str(intention), *rounds, *more])
        longest = 200 - len(self._scope)  # which comes before it
        digest = hashlib.sha256(key.encode()).hexdigest()[:32]
        return key if len(key) <= longest else f"{key[: longest - 50]}…{digest}"

    def _last_beat(self) -> str:
        """Of the worker that was lost, from the reaper's entry."""
        with self._kernel():
            lost = log.last_loss(self._taken.task_id)
        return _("Last beat: %(at)s.") % {"at": lost["beat_at"]} if lost.get("beat_at") else ""
