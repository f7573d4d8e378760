"""What the demo shows in a terminal: lines, and below them a progress bar that moves."""

import shutil
from collections.abc import Mapping
from typing import Any, Protocol

from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from supervision.kernel.models import LogEntry


class Output(Protocol):
    """A command's ``self.stdout``."""

    def write(self, msg: str = "", style_func: Any = None, ending: str | None = None) -> None: ...
    def flush(self) -> None: ...
    def isatty(self) -> bool: ...


class Screen:
    """Lines for everybody; a bar only where somebody watches, in the last line of a terminal."""

    _CLEAR = "\r\x1b[K"

    def __init__(self, output: Output) -> None:
        self._output = output
        self._has_terminal = output.isatty()
        self._bar = ""

    def say(self, line: str) -> None:
        """Writes the line, above the bar."""
        self.clear()
        self._output.write(line)
        self._output.flush()

    def show(self, done: int, total: int, text: str) -> None:
        """Moves the bar."""
        if self._has_terminal:
            bar = _bar(done, total, text, shutil.get_terminal_size().columns - 1)
            if bar != self._bar:
                self._draw(self._CLEAR + bar)
                self._bar = bar

    def clear(self) -> None:
        """Removes the bar."""
        if self._bar:
            self._draw(self._CLEAR)
            self._bar = ""

    def _draw(self, text: str) -> None:
        self._output.write(text, ending="")
        self._output.flush()


def transition(entry: LogEntry, names: Mapping[str, str]) -> str:
    """An entry of the log as a line; ``names`` are the questions' names by their keys."""
    at = timezone.localtime(entry.created_at)
    return f"{at:%H:%M:%S.%f}"[:-3] + f"  {_told(entry, names)}"


def summary(result: Mapping[str, Any]) -> str:
    """The result of a task that normalised countries, in a few lines."""
    rows = ngettext("%(n)s row", "%(n)s rows", result["rows"]) % {"n": f"{result['rows']:,}"}
    names = ngettext("%(n)s different name", "%(n)s different names", result["names"]) % {"n": f"{result['names']:,}"}
    decided = _("%(rule)s decided by rule, %(asked)s by a person") % {
        "rule": f"{result['decided_by_rule']:,}",
        "asked": f"{result['asked']:,}",
    }
    lines = [f"{rows}, {names}: {decided}."]
    if result["codes"]:
        most = ", ".join(f"{code} {count:,}" for code, count in result["codes"])
        lines.append(_("Most frequent: %(most)s.") % {"most": most})
    lines.append(_("Written: %(output)s") % {"output": result["output"]})
    return "\n".join(lines)


def _told(entry: LogEntry, names: Mapping[str, str]) -> str:
    payload: Mapping[str, Any] = entry.payload
    match entry.event:
        case "task_created":
            return _("pending: created")
        case "task_taken":
            return _("running: taken by %(worker)s") % {"worker": entry.actor_ref}
        case "question_answered":
            name = names.get(entry.name, entry.name)
            return _("answered: “%(name)s” is %(code)s") % {"name": name, "code": payload.get("answer")}
        case "task_parked" | "question_asked":
            return _("parked: %(reason)s") % {"reason": payload.get("reason")}
        case "message_logged":
            return str(payload.get("message"))
        case event:
            told = event.removeprefix("task_").replace("_", " ")
            return f"{told}: {payload['reason']}" if payload.get("reason") else told


def _bar(done: int, total: int, text: str, width: int) -> str:
    share = min(1.0, done / total) if total else 0.0
    room = 24
    filled = int(share * room)
    return f"[{'#' * filled}{'.' * (room - filled)}] {share:4.0%}  {text}"[: max(0, width)]
