"""The log in lines for people: the message or the reason in the open, the rest to be unfolded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from supervision import wording
from supervision.kernel import log
from supervision.kernel.models import LogEntry, Task
from supervision.showing.texts import excerpt

MACHINES = frozenset({"task_taken", "task_parked", "task_checkpointed", "children_ended"})
"""Events whose actor is a worker, not a person."""

_WHOLE = 10_000
"""Owners see messages whole: they can't have the entry that one is from."""


def page(task: Task, before: str) -> log.Page:
    """The page of the log that an address asks for by ``before``; the newest for one that is no number."""
    return log.page(task.pk, before=int(before) if before.isdecimal() and len(before) < 19 else None)


def lines(entries: Iterable[LogEntry], *, for_operators: bool) -> list[dict[str, Any]]:
    """One line an entry, runs of the same bare word folded into one. Operators see the details, which a
    download has whole, and which worker it was."""
    return _folded([_line(entry, for_operators) for entry in entries])


def _line(entry: LogEntry, for_operators: bool) -> dict[str, Any]:
    payload = dict(entry.payload) if isinstance(entry.payload, dict) else {"payload": entry.payload}
    message = str(payload.pop("message", "") or "")
    if not message and isinstance(payload.get("reason"), str):
        message = wording.reason(payload.pop("reason"))
    longest = 2000 if for_operators else _WHOLE
    shown, note = excerpt(message, longest), excerpt(str(payload.pop("note", "") or ""), longest)
    has_details = for_operators and any(value not in ({}, None, "", []) for value in payload.values())
    details = excerpt(payload, 3000) if has_details else None
    return {
        "entry": entry,
        "number": str(entry.sequence_num),
        "times": 1,
        "event": wording.event(entry.event),
        "actor": entry.actor_ref if for_operators or entry.event not in MACHINES else "",
        "message": shown,
        "note": note,
        "details": details,
        "is_cut": shown.is_cut or note.is_cut or (details is not None and details.is_cut),
        "is_grave": entry.event in ("task_failed", "step_failed", "task_expired"),
    }


def _folded(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Runs of lines that say nothing but the same word become one, with the numbers that it stands for."""
    folded: list[dict[str, Any]] = []
    for line in lines:
        last = folded[-1] if folded else None
        is_bare = not (line["message"] or line["note"] or line["details"] or line["entry"].name)
        if last is not None and is_bare and last.get("bare") == line["entry"].event:
            first = last["number"].partition("-")[0]
            folded[-1] = {
                **line,
                "bare": last["bare"],
                "times": last["times"] + 1,
                "number": f"{first}-{line['number']}",
            }
        else:
            folded.append({**line, "bare": line["entry"].event if is_bare and not line["actor"] else None})
    return folded
