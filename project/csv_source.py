"""Reading a CSV file record by record, resumable at any record, and writing it back with one column more.

Pure: works on binary files and knows no task. Memory is constant; a record is at most ``MAX_LINE_BYTES`` a line.
"""

import codecs
import csv
import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from django.utils.translation import gettext as _

OUTPUT_COLUMN = "country_code"
MAX_LINE_BYTES = 1024 * 1024


class BadInput(Exception):
    """The file can't be worked with. The text is one sentence for an operator: what, where, and what to do."""


class Readable(Protocol):
    """A binary file: what ``open(path, "rb")`` and Django's ``File`` have in common."""

    def readline(self, size: int = -1, /) -> bytes: ...
    def seek(self, offset: int, whence: int = 0, /) -> int: ...


class Writable(Protocol):
    def write(self, data: bytes, /) -> int: ...


class Row(NamedTuple):
    """One record: ``row_number`` counts records from 1, ``line_number`` is the line of the file that it begins on.

    ``end_offset`` and ``end_line`` are where the next one begins. Reading goes on there, in this process or another.
    """

    row_number: int
    line_number: int
    fields: list[str]
    end_offset: int
    end_line: int


class Position(NamedTuple):
    """A place between two records, three plain numbers: ``Position.after(row)``, ``Position(*stored)``.

    ``row_number`` is that of the record before, ``line`` and ``offset`` are those of the next record.
    """

    row_number: int
    line: int
    offset: int

    @classmethod
    def after(cls, row: Row) -> "Position":
        return cls(row.row_number, row.end_line, row.end_offset)


@dataclass(frozen=True)
class Source:
    """An opened CSV file whose header has been read."""

    file: Readable
    columns: list[str]
    column_index: int
    body: Position
    newline: str
    has_bom: bool
    size: int

    def rows(self, start: Position | None = None) -> Iterator[Row]:
        """Yield the records from ``start`` on (default: the first one). Lines without any text are no records.

        One iteration at a time: it moves the file's position. Raises ``BadInput`` at the first faulty record.
        """
        start = start or self.body
        self._check(start)
        for row in _records(self.file, start):
            if len(row.fields) != len(self.columns):
                raise BadInput(_wrong_length(row, len(self.columns)))
            yield row

    def name(self, row: Row) -> str:
        """Return the row's value in the wanted column, without the spaces around it."""
        return row.fields[self.column_index].strip()

    def _check(self, start: Position) -> None:
        """Refuse a position that belongs to another version of the file."""
        self.file.seek(max(0, start.offset - 1))
        before = self.file.readline(1)
        if start.offset > self.size or (start.offset < self.size and before != b"\n"):
            raise BadInput(
                _(
                    "The file has changed since row %(row)d was read, so the work can't go on at row %(next)d: "
                    "start a new task for the new file."
                )
                % {"row": start.row_number, "next": start.row_number + 1}
            )


def open_source(file: Readable, column: str, *, max_bytes: int) -> Source:
    """Read the header of ``file``, from its beginning, and find ``column``: exactly, else without case and spaces.

    Raises ``BadInput`` for a file of more than ``max_bytes`` bytes, an empty one, one that isn't UTF-8 or CSV, and a
    header without exactly one such column or with the output's column already in it.
    """
    size = file.seek(0, io.SEEK_END)
    if size > max_bytes:
        raise BadInput(
            _("The file has %(size)s bytes, more than the limit of %(limit)s: split it, or have the limit raised.")
            % {"size": f"{size:,}", "limit": f"{max_bytes:,}"}
        )
    file.seek(0)
    first_line = file.readline(MAX_LINE_BYTES)
    has_bom = first_line.startswith(codecs.BOM_UTF8)
    start = Position(0, 1, len(codecs.BOM_UTF8) if has_bom else 0)
    header = next(_records(file, start), None)
    if header is None:
        raise BadInput(_("The file is empty: it needs a first line with the names of the columns."))
    return Source(
        file=file,
        columns=header.fields,
        column_index=_find_column(header.fields, column),
        body=Position(0, header.end_line, header.end_offset),
        newline="\r\n" if first_line.endswith(b"\r\n") else "\n",
        has_bom=has_bom,
        size=size,
    )


def write_output(
    source: Readable,
    destination: Writable,
    column: str,
    codes: Mapping[str, str],
    *,
    after_row: Callable[[Row, str], None] = lambda row, code: None,
) -> int:
    """Write ``source`` to ``destination`` with a last column ``country_code``; return the number of rows.

    ``codes`` has the code of each name in ``column``, the spaces around the names removed. Line ending and byte order
    mark are the input's; fields are quoted where they have to be. ``after_row`` is called with each row and its code.
    Raises ``BadInput`` as reading does, and ``KeyError`` for a name without a code.
    """
    opened = open_source(source, column, max_bytes=source.seek(0, io.SEEK_END))
    if opened.has_bom:
        destination.write(codecs.BOM_UTF8)
    writer = csv.writer(_Encoding(destination), lineterminator=opened.newline)
    writer.writerow([*opened.columns, OUTPUT_COLUMN])
    count = 0
    for row in opened.rows():
        code = codes[opened.name(row)]
        writer.writerow([*row.fields, code])
        count = row.row_number
        after_row(row, code)
    return count


class _Encoding:
    """A text file for ``csv.writer``. Not ``io.TextIOWrapper``: that one closes the file that it was lent."""

    def __init__(self, destination: Writable) -> None:
        self._destination = destination

    def write(self, text: str) -> int:
        return self._destination.write(text.encode())


def _records(file: Readable, start: Position) -> Iterator[Row]:
    """Yield the records from ``start`` on, of whatever length."""
    lines = _Lines(file, start)
    # Strict: else a quote that is opened and never closed would quietly swallow the rest of the file.
    reader = csv.reader(lines, strict=True)
    row_number = start.row_number
    while True:
        line_number = lines.line
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise BadInput(_csv_fault(str(error), line_number)) from error
        if fields:
            row_number += 1
            yield Row(row_number, line_number, fields, lines.offset, lines.line)


class _Lines:
    """The lines of a file as text. ``csv.reader`` takes only as many as a record needs, so ``offset`` is exact.

    ``offset`` and ``line`` are those of the next line.
    """

    def __init__(self, file: Readable, start: Position) -> None:
        self._file = file
        self.offset = start.offset
        self.line = start.line
        file.seek(start.offset)

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        raw = self._file.readline(MAX_LINE_BYTES + 1)
        if not raw:
            raise StopIteration
        if len(raw) > MAX_LINE_BYTES:
            raise BadInput(
                _("Line %(line)d is longer than %(limit)s bytes: check whether this is a CSV file.")
                % {"line": self.line, "limit": f"{MAX_LINE_BYTES:,}"}
            )
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            raise BadInput(
                _("The file is not UTF-8 (byte %(byte)d, on line %(line)d): save it as UTF-8 and try again.")
                % {"byte": self.offset + error.start + 1, "line": self.line}
            ) from error
        if "\0" in text:
            raise BadInput(
                _("Line %(line)d has a NUL character: check whether this is a CSV file.") % {"line": self.line}
            )
        self.offset += len(raw)
        self.line += 1
        return text


def _find_column(columns: list[str], wanted: str) -> int:
    if OUTPUT_COLUMN in map(_folded, columns):
        raise BadInput(
            _("The file already has a column “%(column)s”, which the output adds: rename or remove it.")
            % {"column": OUTPUT_COLUMN}
        )
    found = [i for i, column in enumerate(columns) if column == wanted]
    found = found or [i for i, column in enumerate(columns) if _folded(column) == _folded(wanted)]
    if len(found) > 1:
        raise BadInput(
            _("The file has %(count)d columns “%(column)s” (line 1): rename all but the one to use.")
            % {"count": len(found), "column": wanted}
        )
    if not found:
        raise BadInput(_no_such_column(columns, wanted))
    return found[0]


def _no_such_column(columns: list[str], wanted: str) -> str:
    if len(columns) == 1 and (";" in columns[0] or "\t" in columns[0]):
        return _(
            "There is no column “%(wanted)s”, as line 1 has no commas (“%(line)s”): "
            "save the file with commas between the columns."
        ) % {"wanted": wanted, "line": _shortened(columns[0])}
    return _("There is no column “%(wanted)s”: choose one of %(columns)s.") % {
        "wanted": wanted,
        "columns": _shortened(", ".join(f"“{column}”" for column in columns)),
    }


def _wrong_length(row: Row, expected: int) -> str:
    facts = {"line": row.line_number, "found": len(row.fields), "expected": expected}
    if len(row.fields) < expected:
        return _("Line %(line)d has too few fields, %(found)d instead of %(expected)d: add the missing ones.") % facts
    return (
        _(
            "Line %(line)d has too many fields, %(found)d instead of %(expected)d: "
            "put quotes around a field that has a comma in it."
        )
        % facts
    )


def _csv_fault(error: str, line: int) -> str:
    """Say what the csv module found in the record that begins on ``line``."""
    facts = {"line": line, "limit": f"{csv.field_size_limit():,}", "error": error}
    if "unexpected end of data" in error:
        return _("The quote opened in the row on line %(line)d is never closed: close it.") % facts
    if "field limit" in error:
        return (
            _(
                "A field in the row on line %(line)d is longer than %(limit)s characters: "
                "check whether a quote opened there is never closed."
            )
            % facts
        )
    if "new-line character" in error:
        return (
            _("Line %(line)d has a lone carriage return: save the file with the line endings of Windows or Unix.")
            % facts
        )
    return _("The row on line %(line)d is not valid CSV (%(error)s): check its quotes.") % facts


def _folded(column: str) -> str:
    return column.strip().casefold()


def _shortened(text: str, length: int = 300) -> str:
    return text if len(text) <= length else text[:length] + "…"
