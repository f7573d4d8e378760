"""CSV files with country names for tests, and what must come of them."""

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from project.countries import Decided, decide, every_country
from project.normalising import question_key
from supervision.kernel.models import LogEntry, Task

EXAMPLES = Path(__file__).parents[1] / "project" / "data"


def big_file(path: Path, rows: int, *, unclear: int = 300) -> dict[str, str]:
    """Writes so many rows, with clear names and so many unclear ones in turns; the answers for those."""
    clear = [each.label for each in every_country() if isinstance(decide(each.label), Decided)]
    answers = {f"Atlantis {number}": "GR" if number % 2 else "ZZ" for number in range(unclear)}
    names = [name for pair in zip(clear, clear[::-1], strict=True) for name in pair] + list(answers)
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["id", "country", "remark"])
        writer.writerows([number, names[number % len(names)], 'said "yes", twice'] for number in range(rows))
    return answers


def expected_output(data: bytes, answers: Mapping[str, str]) -> bytes:
    """The input with the right codes, made without the code under test's own reader and writer."""
    reader = csv.reader(io.StringIO(data.decode(), newline=""))
    header = next(reader)
    at = header.index("country")
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*header, "country_code"])
    codes: dict[str, str] = dict(answers)
    for row in reader:
        if row[at] not in codes:
            decision = decide(row[at])
            assert isinstance(decision, Decided), row[at]
            codes[row[at]] = decision.code
        writer.writerow([*row, codes[row[at]]])
    return text.getvalue().encode()


def decided_in_log(task: Task) -> list[str]:
    """The names that the log says were decided, each as often as it says so."""
    notes = LogEntry.objects.filter(task_id=task.pk, event="task_checkpointed").order_by("sequence_num")
    payloads: list[dict[str, Any]] = list(notes.values_list("payload", flat=True))
    return [name for payload in payloads for name in payload.get("note", {}).get("decided", {})]


def asked_in_log(task: Task) -> list[str]:
    """The keys of the questions that the log says were asked, each as often as it says so."""
    entries = LogEntry.objects.filter(task_id=task.pk, event="question_asked").order_by("sequence_num")
    return [key for payload in entries.values_list("payload", flat=True) for key in payload["keys"]]


def assert_each_name_once(task: Task, data: bytes, answers: Mapping[str, str]) -> None:
    """Fails unless the log has each name of the file decided once, and each unclear one asked once."""
    names = {row["country"] for row in csv.DictReader(io.StringIO(data.decode(), newline=""))}
    assert sorted(decided_in_log(task)) == sorted(names)
    assert sorted(asked_in_log(task)) == sorted(question_key(name) for name in answers)
