"""The example work: the country column of a CSV file as ISO 3166-1 alpha-2 codes, with a person for the unclear names.

Three passes over durable ground. *Read* decides each name where it first occurs and checkpoints where it is; *ask* puts
all unclear names before a person at once; *write* replaces the output in one stroke. A killed worker costs the rows
since the last checkpoint, or the draft of the output, and never a decision that was recorded.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.core.files.base import File
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from project import files
from project.countries import Decided, decide, every_country
from project.csv_source import BadInput, Position, Readable, Row, Source, open_source, write_output
from project.files import Files, OnDisk, Uploaded
from project.forms import UploadForm
from supervision.engines import Ask, Cancelled, Context, Failure, StoredFile, body, start, store
from supervision.errors import TooLarge
from supervision.kernel.files import kept_on_success
from supervision.kernel.models import Task

BODY = "normalise_countries"
UNKNOWN = "ZZ"
"""The code that ISO 3166-1 leaves to users, mostly used for an unknown country."""

MAX_UNCLEAR_NAMES = 1_000
MAX_NAME_LENGTH = 200
ROWS_PER_CHECKPOINT = 500
ROWS_PER_WRITTEN_CHECKPOINT = 10_000
"""Nothing of the write pass is kept when it is cut short: these only let it be paused, cancelled and stopped."""


@body(BODY, label=_("Normalise countries"), sensitive=("permit",), form=UploadForm)
def normalise_countries(
    task: Context,
    *,
    file: StoredFile | None = None,
    column: str = "country",
    path: str = "",
    output: str = "",
    permit: str = "",
) -> dict[str, Any]:
    """Adds the ISO 3166-1 code of each row's country to a CSV file, and asks about names that are not clear.

    The input is an uploaded ``file``, or a ``path`` on disk, which needs an ``output`` beside it and a ``permit``: see
    ``start_on_disk``. Bad input ends in a Failure that says what to do.
    """
    with _explained():
        chosen = _files(file, path, output, permit)
        try:
            return _Normalisation(task, chosen, column).run()
        except Cancelled:
            chosen.discard_drafts(str(task.id))
            raise


def start_on_disk(path: Path, *, column: str, output: Path | None = None, by: Any = None) -> Task:
    """A new task for the file at ``path``. For the command line only: whoever calls it vouches for the paths.

    One at a time may write an output: ConcurrencyKeyHeld has the task that does.
    """
    source = path.expanduser().resolve()
    target = (output or files.beside(source)).expanduser().resolve()
    arguments = {
        "path": str(source),
        "column": column,
        "output": str(target),
        "permit": files.permit(str(source), str(target)),
    }
    return start(BODY, arguments, subject=source.name, concurrency_key=f"{BODY}:{_digest(str(target))}", by=by)


def start_upload(file: File[Any], *, column: str, owner: Any = None, idempotency_key: str = "") -> Task:
    """Stores the file and starts a task for it, as the form in admin does."""
    with kept_on_success() as stored:
        stored.append(store(file))
        arguments = {"file": stored[0], "column": column}
        return start(BODY, arguments, owner=owner, subject=str(stored[0].name), idempotency_key=idempotency_key)


def question_key(name: str) -> str:
    """The key of the question about that name: readable, and within a key's length."""
    key = f"country:{name}"
    return key if len(key) <= 200 else f"country:{name[:150]}:{_digest(name)}"


def unclear_names(decisions: dict[str, Any]) -> dict[str, str]:
    """Question key -> name as in the file, in its order, of a task's durable decisions."""
    return {question_key(name): name for name, _rows, _line in _in_order(decisions.get("unclear", {}))}


@dataclass(frozen=True)
class _Normalisation:
    """One drive. ``task.decisions`` hold: ``codes`` {name: code}, ``unclear`` {name: [rows, first line]}, ``position``
    to go on reading at, and ``is_read``."""

    task: Context
    files: Files
    column: str

    def run(self) -> dict[str, Any]:
        self.files.check_output()
        with self.files.reading() as file:
            source = open_source(file, self.column, max_bytes=files.MAX_INPUT_BYTES)
            if not self.task.decisions.get("is_read"):
                self._read(source)
            decided: dict[str, str] = self.task.decisions["codes"]
            asked = self._ask()
            rows, used = self._write(file, source, decided | asked)
        return {
            "rows": rows,
            "names": len(decided) + len(asked),
            "decided_by_rule": len(decided),
            "asked": len(asked),
            "output": self.files.output,
            "codes": [[code, count] for code, count in used.most_common(10)],
        }

    # --- read

    def _read(self, source: Source) -> None:
        decisions = self.task.decisions
        codes = decisions.setdefault("codes", {})
        unclear = decisions.setdefault("unclear", {})
        start = Position(*decisions["position"]) if "position" in decisions else None
        fresh: dict[str, str | None] = {}
        for row in source.rows(start):
            name = source.name(row)
            if name in unclear:
                unclear[name][0] += 1
            elif name not in codes:
                fresh[name] = self._decide(row, name)
            decisions["position"] = Position.after(row)
            if row.row_number % ROWS_PER_CHECKPOINT == 0:
                self._checkpoint(fresh)
                self._show(source, row, done=row.end_offset, doing=_("Reading: row %(row)s"))
        decisions["is_read"] = True
        self._checkpoint(fresh)

    def _decide(self, row: Row, name: str) -> str | None:
        """Decides a name that is new: its code, or None for a person to decide."""
        if len(name) > MAX_NAME_LENGTH:
            raise BadInput(
                _("On line %(line)d stands a text of %(length)d characters in the column “%(column)s”, too long for a "
                  "country: check whether it is the right column.")
                % {"line": row.line_number, "length": len(name), "column": self.column}
            )  # fmt: skip
        decision = decide(name)
        if isinstance(decision, Decided):
            self.task.decisions["codes"][name] = decision.code
            return decision.code
        unclear = self.task.decisions["unclear"]
        if len(unclear) == MAX_UNCLEAR_NAMES:
            raise BadInput(
                _("Up to line %(line)d there are more than %(limit)s different texts in the column “%(column)s” that "
                  "are no clear country, the last one “%(name)s”: check whether it is the right column.")
                % {"line": row.line_number, "limit": f"{MAX_UNCLEAR_NAMES:,}", "column": self.column, "name": name}
            )  # fmt: skip
        unclear[name] = [1, row.line_number]
        return None

    def _checkpoint(self, fresh: dict[str, str | None]) -> None:
        """Makes durable what was read. The log's note has each name once: with its code, or null for a question."""
        try:
            self.task.checkpoint("read", note={"decided": fresh} if fresh else None)
        except TooLarge:
            names = len(self.task.decisions["codes"]) + len(self.task.decisions["unclear"])
            raise BadInput(
                _("There are %(names)s different texts in the column “%(column)s”, too many to keep; the world has "
                  "%(countries)d countries: check whether it is the right column.")
                % {"names": f"{names:,}", "column": self.column, "countries": len(every_country())}
            ) from None  # fmt: skip
        fresh.clear()

    # --- ask

    def _ask(self) -> dict[str, str]:
        """Unclear name -> code, once a person has answered for all of them."""
        unclear: dict[str, list[int]] = self.task.decisions["unclear"]
        if any(question_key(name) not in self.task.answers for name in unclear):
            everywhere = {each.code: f"{each.label} ({each.code})" for each in every_country()}
            self.task.ask_all([self._question(name, rows, line, everywhere) for name, rows, line in _in_order(unclear)])
        return {name: self.task.answers[question_key(name)] for name in unclear}

    def _question(self, name: str, rows: int, line: int, everywhere: dict[str, str]) -> Ask:
        decision = decide(name)
        likely = () if isinstance(decision, Decided) else decision.candidates
        choices = {each.code: everywhere[each.code] for each in likely} | everywhere
        prompt = _("Which country is “%(name)s”?") if name else _("Which country have the rows that name none?")
        help_text = ngettext(
            "In %(rows)s row, on line %(line)s. The likeliest come first.",
            "In %(rows)s rows, the first on line %(line)s. The likeliest come first.",
            rows,
        )
        return Ask(
            key=question_key(name),
            prompt=prompt % {"name": name},
            kind="choice",
            choices={**choices, UNKNOWN: _("None of these, or unknown (ZZ)")},
            help=help_text % {"rows": f"{rows:,}", "line": f"{line:,}"},
        )

    # --- write

    def _write(self, file: Readable, source: Source, codes: dict[str, str]) -> tuple[int, Counter[str]]:
        """Replaces the output; the number of rows, and of rows for each code."""
        used: Counter[str] = Counter()

        def after_row(row: Row, code: str) -> None:
            used[code] += 1
            if row.row_number % ROWS_PER_WRITTEN_CHECKPOINT == 0:
                self.task.checkpoint("write")
                self._show(source, row, done=source.size + row.end_offset, doing=_("Writing: row %(row)s"))

        with self.files.replacing(str(self.task.id)) as draft:
            try:
                rows = write_output(file, draft, self.column, codes, after_row=after_row)
            except KeyError as missing:
                raise BadInput(
                    _("The file has changed since it was read, “%(name)s” is new: start a new task for it.")
                    % {"name": missing.args[0]}
                ) from None
            self.task.checkpoint("written")  # refused to a worker that was overtaken, which then replaces nothing
        self.task.progress(2 * source.size, 2 * source.size, _("Written: %(rows)s rows") % {"rows": f"{rows:,}"})
        return rows, used

    def _show(self, source: Source, row: Row, *, done: int, doing: str) -> None:
        self.task.progress(done, 2 * source.size, doing % {"row": f"{row.row_number:,}"})


def _files(file: StoredFile | None, path: str, output: str, permit: str) -> Files:
    if file is not None:
        if path or output:
            raise BadInput(_("Either upload a file or name paths on disk, not both."))
        return Uploaded(file)
    if not files.is_permitted(path, output, permit):
        raise BadInput(_("A path on disk can only be given on the command line: upload the file instead."))
    return OnDisk(Path(path), Path(output))


@contextmanager
def _explained() -> Iterator[None]:
    """Bad input, and files that fail, as a Failure: a sentence for an operator, without a traceback."""
    try:
        yield
    except BadInput as fault:
        raise Failure(str(fault)) from None
    except OSError as error:
        raise Failure(
            _("A file could not be read or written: %(error)s") % {"error": error.strerror or error}
        ) from error


def _in_order(unclear: dict[str, list[int]]) -> list[tuple[str, int, int]]:
    """(name, rows, first line) by the line: jsonb keeps no order."""
    return sorted(((name, rows, line) for name, (rows, line) in unclear.items()), key=lambda each: each[2])


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
