"""The example work, driven in this process: what it asks, what it writes, and what it says of bad input."""

import json
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.utils.datastructures import MultiValueDict
from pytest_django import Settings

from project import csv_source, files, normalising
from project.countries import decide
from project.forms import UploadForm
from project.normalising import BODY, question_key, start_on_disk, start_upload
from supervision.engines import registry, retry, start
from supervision.errors import ConcurrencyKeyHeld
from supervision.kernel import due, lease, lifecycle, log
from supervision.kernel.models import Heartbeat, LogEntry, Question, Task
from supervision.testing import answer, run_until_idle
from supervision.worker.drive import drive_one
from tests.countries_csv import EXAMPLES, assert_each_name_once, big_file, expected_output

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _media(settings: Settings, tmp_path: Path) -> None:
    settings.MEDIA_ROOT = tmp_path / "media"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A file with two unclear names and one blank, in a folder of its own."""
    path = tmp_path / "files" / "people.csv"
    path.parent.mkdir()
    path.write_text("name,country\nAnn,Korea\nBo,Peru\nCy,Korea\nDi,Holand\nEd, \nFi,peru\nGu,Peru\n")
    return path


ANSWERS = {"Korea": "KR", "Holand": "NL", "": "ZZ"}
OUTPUT = (
    "name,country,country_code\nAnn,Korea,KR\nBo,Peru,PE\nCy,Korea,KR\nDi,Holand,NL\nEd, ,ZZ\nFi,peru,PE\nGu,Peru,PE\n"
)


def result_of(task: Task) -> dict[str, Any]:
    assert task.result is not None, task.failure
    result: dict[str, Any] = task.result
    return result


def stored(task: Task) -> bytes:
    """The output of an upload."""
    task.refresh_from_db()
    with default_storage.open(result_of(task)["output"]["stored_file"]) as file:
        data: bytes = file.read()
    return data


def upload(data: bytes) -> Task:
    return start_upload(ContentFile(data, "people.csv"), column="country")


def uploaded(data: bytes) -> Any:
    """As a browser sends it."""
    return MultiValueDict({"file": [SimpleUploadedFile("people.csv", data)]})


def give(task: Task, answers: dict[str, str]) -> None:
    answer(task, {question_key(name): code for name, code in answers.items()})


def begin(source: Path, output: Path | None = None) -> Task:
    task = start_on_disk(source, column="country", output=output)
    run_until_idle()
    task.refresh_from_db()
    return task


def run(source: Path, answers: dict[str, str], output: Path | None = None) -> Task:
    task = begin(source, output)
    give(task, answers)
    run_until_idle()
    task.refresh_from_db()
    return task


def drive_once(task: Task, *, stopping: bool = False) -> None:
    """One drive; with ``stopping`` it ends at its first checkpoint, as if the worker was told to stop."""
    (offered,) = due.offer(1, queues=None, bodies=registry.drivable(), version_grace=timedelta(0))
    assert drive_one(offered.task_id, offered.lease, stopping=lambda: stopping, thread=False)
    task.refresh_from_db()


# --- asking and writing


def test_unclear_names_are_asked_at_once_and_the_answers_used_for_each_row(source: Path) -> None:
    task = begin(source)
    assert task.watchdog_stop_reason == "awaiting_user_answers:3"
    assert not (source.parent / "people-with-country-codes.csv").exists()
    give(task, ANSWERS)
    run_until_idle()
    task.refresh_from_db()
    assert task.result == {
        "rows": 7,
        "names": 5,
        "decided_by_rule": 2,
        "asked": 3,
        "output": str(source.parent / "people-with-country-codes.csv"),
        "codes": [["PE", 3], ["KR", 2], ["NL", 1], ["ZZ", 1]],
    }
    assert Path(result_of(task)["output"]).read_text() == OUTPUT
    assert sorted(path.name for path in source.parent.iterdir()) == ["people-with-country-codes.csv", "people.csv"]


def test_a_question_offers_the_candidates_then_every_country_then_unknown(source: Path) -> None:
    task = begin(source)
    question = Question.objects.get(task=task, key="country:Korea")
    codes = [code for code, _label in question.form["choices"]]
    assert question.prompt == "Which country is “Korea”?"
    assert question.form["help"] == "In 2 rows, the first on line 2. The likeliest come first."
    assert codes[:3] == ["KR", "KP", "AF"]
    assert codes[-1] == "ZZ"
    assert len(codes) == len(set(codes)) == 250


def test_the_example_file_is_asked_exactly_what_the_example_answers_answer() -> None:
    data = (EXAMPLES / "customers.csv").read_bytes()
    answers = json.loads((EXAMPLES / "answers.json").read_text())
    task = upload(data)
    run_until_idle()
    give(task, answers)
    run_until_idle()
    task.refresh_from_db()
    assert stored(task) == expected_output(data, answers)
    assert_each_name_once(task, data, answers)


def test_a_file_without_rows_becomes_one_without_rows(tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("name,country\n")
    task = run(tmp_path / "empty.csv", {})
    assert (task.current_state, result_of(task)["rows"]) == ("completed", 0)
    assert Path(result_of(task)["output"]).read_text() == "name,country,country_code\n"


def test_a_name_longer_than_a_key_is_asked_and_used(tmp_path: Path) -> None:
    names = ["x" * 199 + "a", "x" * 199 + "b"]
    (tmp_path / "long.csv").write_text("country\n" + "\n".join(names) + "\n")
    task = run(tmp_path / "long.csv", dict(zip(names, ["DE", "FR"], strict=True)))
    assert Path(result_of(task)["output"]).read_text() == f"country,country_code\n{names[0]},DE\n{names[1]},FR\n"


def test_an_output_that_exists_is_replaced(source: Path) -> None:
    output = source.parent / "out.csv"
    output.write_text("old")
    run(source, ANSWERS, output)
    assert output.read_text() == OUTPUT


def test_progress_covers_reading_and_writing(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(normalising, "ROWS_PER_CHECKPOINT", 2)
    monkeypatch.setattr(normalising, "ROWS_PER_WRITTEN_CHECKPOINT", 2)
    shown: list[tuple[int | None, int | None]] = []
    monkeypatch.setattr(
        "supervision.worker.heart.Heart.progress", lambda self, done, total, text: shown.append((done, total))
    )
    run(source, ANSWERS)
    size = source.stat().st_size
    assert {total for _done, total in shown} == {2 * size}
    assert [done for done, _total in shown] == sorted(done for done, _total in shown if done is not None)
    assert shown[-1] == (2 * size, 2 * size)


# --- interrupted


def test_stopped_at_every_checkpoint_it_decides_each_name_once_and_writes_the_same(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(normalising, "ROWS_PER_CHECKPOINT", 1)
    task = start_on_disk(source, column="country")
    drives = 0
    while not task.locked_decisions.get("is_read") and drives < 20:
        drive_once(task, stopping=True)
        drives += 1
    assert drives == 8  # one for each row, one that finds the end
    run_until_idle()
    give(task, ANSWERS)
    run_until_idle()
    task.refresh_from_db()
    assert Path(result_of(task)["output"]).read_text() == OUTPUT
    decided = [entry.payload.get("note", {}).get("decided") for entry in log.page(task.pk, size=100).entries]
    assert [names for names in decided if names] == [
        {"Korea": None}, {"Peru": "PE"}, {"Holand": None}, {"": None}, {"peru": "PE"}
    ]  # fmt: skip
    assert LogEntry.objects.filter(task_id=task.pk, event="question_asked").count() == 1


def test_a_draft_that_a_killed_worker_left_is_removed(source: Path) -> None:
    task = begin(source)
    others = source.parent / f".{'0' * 32}.dead.part"
    others.write_text("another task's")
    (source.parent / f".{task.pk}.dead.part").write_text("half")
    give(task, ANSWERS)
    run_until_idle()
    assert list(source.parent.glob(".*")) == [others]


def test_a_draft_that_a_killed_worker_left_is_removed_when_the_task_is_cancelled(source: Path) -> None:
    task = begin(source)
    (source.parent / f".{task.pk}.dead.part").write_text("half")
    lifecycle.cancel(task.pk, by="test")
    run_until_idle()
    task.refresh_from_db()
    assert task.current_state == "cancelled"
    assert list(source.parent.glob(".*")) == []


def test_a_worker_that_was_overtaken_while_writing_replaces_nothing(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = begin(source)
    give(task, ANSWERS)
    write = csv_source.write_output

    def overtaken(*args: Any, **kwargs: Any) -> int:
        rows = write(*args, **kwargs)
        Heartbeat.objects.filter(task=task).update(
            beat_at=Heartbeat.objects.get(task=task).beat_at - timedelta(hours=1)
        )
        assert lease.reap(task.pk)
        return rows

    monkeypatch.setattr(normalising, "write_output", overtaken)
    drive_once(task)
    assert task.watchdog_stop_reason == "worker_lost"
    assert list(source.parent.iterdir()) == [source]
    monkeypatch.undo()
    run_until_idle()
    assert (source.parent / "people-with-country-codes.csv").read_text() == OUTPUT


def test_a_file_with_a_new_name_since_it_was_read_is_refused_and_the_old_output_kept(source: Path) -> None:
    output = source.parent / "out.csv"
    output.write_text("old")
    task = begin(source, output)
    with source.open("a") as file:
        file.write("Gus,Narnia\n")
    give(task, ANSWERS)
    run_until_idle()
    task.refresh_from_db()
    assert task.failure == "The file has changed since it was read, “Narnia” is new: start a new task for it."
    assert output.read_text() == "old"
    assert list(source.parent.glob(".*")) == []


def test_a_retry_asks_nobody_twice(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = begin(source)
    give(task, ANSWERS)
    moved = source.rename(source.with_name("moved.csv"))
    run_until_idle()
    task.refresh_from_db()
    assert task.failure == f"There is no file “{source}”."
    moved.rename(source)
    again = retry(task.pk)
    run_until_idle()
    again.refresh_from_db()
    assert (again.current_state, result_of(again)["asked"]) == ("completed", 3)


# --- bad input


@pytest.mark.parametrize(
    ("data", "failure"),
    [
        (b"", "The file is empty: it needs a first line with the names of the columns."),
        (b"name,land\nAnn,Peru\n", "There is no column “country”: choose one of “name”, “land”."),
        ("country\nPerú\n".encode("latin-1"), "The file is not UTF-8 (byte 12, on line 2): save it as UTF-8"),
        (b"name,country\nAnn,Peru\nBo\n", "Line 3 has too few fields, 1 instead of 2: add the missing ones."),
        (b"name,country\nAnn,Peru\n\"Bo,Chile\n", "The quote opened in the row on line 3 is never closed: close it."),
        (b"country\n" + b"x" * 201 + b"\n", "On line 2 stands a text of 201 characters in the column “country”, too"),
    ],
    ids=["empty", "no column", "not UTF-8", "too few fields", "open quote", "too long"],
)  # fmt: skip
def test_bad_input_fails_with_a_sentence_and_writes_nothing(tmp_path: Path, data: bytes, failure: str) -> None:
    (tmp_path / "bad.csv").write_bytes(data)
    task = begin(tmp_path / "bad.csv")
    assert task.current_state == "failed"
    assert task.failure.startswith(failure)
    assert "traceback" not in log.page(task.pk).entries[-1].payload
    assert sorted(tmp_path.iterdir()) == [tmp_path / "bad.csv"]


def test_a_quoted_newline_and_a_byte_order_mark_are_good_input(tmp_path: Path) -> None:
    (tmp_path / "odd.csv").write_bytes(b'\xef\xbb\xbfcountry,"a\r\nb"\r\nPeru,"c\r\nd"\r\n')
    task = run(tmp_path / "odd.csv", {})
    assert Path(result_of(task)["output"]).read_bytes() == (
        b'\xef\xbb\xbfcountry,"a\r\nb",country_code\r\nPeru,"c\r\nd",PE\r\n'
    )


def test_a_file_over_the_limit_is_refused_with_the_limit(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_INPUT_BYTES", 50)
    assert begin(source).failure.startswith("The file has 71 bytes, more than the limit of 50")


def test_too_many_unclear_names_are_refused_with_the_number_and_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(normalising, "MAX_UNCLEAR_NAMES", 20)
    (tmp_path / "names.csv").write_text("country\n" + "".join(f"Person {number}\n" for number in range(30)))
    assert begin(tmp_path / "names.csv").failure == (
        "Up to line 22 there are more than 20 different texts in the column “country” that are no clear country, the "
        "last one “Person 20”: check whether it is the right column."
    )


def test_too_many_names_to_keep_are_refused_with_the_number_and_the_cause(tmp_path: Path, settings: Settings) -> None:
    settings.SUPERVISION = {"MAX_DECISIONS_BYTES": 300}
    spellings = "".join(f"{'P' * (n % 2)}{'p' * (1 - n % 2)}eru{'.' * n}\n" for n in range(40))
    (tmp_path / "names.csv").write_text("country\n" + spellings)
    assert begin(tmp_path / "names.csv").failure == (
        "There are 40 different texts in the column “country”, too many to keep; the world has 249 countries: check "
        "whether it is the right column."
    )


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert begin(tmp_path / "missing.csv").failure == f"There is no file “{tmp_path / 'missing.csv'}”."
    assert begin(tmp_path / "pipe").failure == f"“{tmp_path / 'pipe'}” is no ordinary file."
    assert begin(tmp_path).failure == f"“{tmp_path}” is no ordinary file."


def test_outputs_that_can_not_be_are_refused_before_anybody_is_asked(source: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    nowhere = tmp_path / "nowhere" / "out.csv"
    assert begin(source, nowhere).failure == f"There is no folder “{nowhere.parent}” to write the output to."
    assert (
        begin(source, tmp_path / "pipe").failure
        == f"“{tmp_path / 'pipe'}” can't be the output: it is no ordinary file."
    )
    assert begin(source, source).failure == f"The output would replace the input “{source}”: name another."
    assert not Question.objects.exists()
    assert source.read_text().startswith("name,country\n")


def test_files_that_may_not_be_used_are_refused(source: Path) -> None:
    source.chmod(0)
    if os.access(source, os.R_OK):
        pytest.skip("root may read and write everything")
    assert begin(source).failure == f"The file “{source}” may not be read by this user."
    source.chmod(0o600)
    source.parent.chmod(0o500)
    assert begin(source).failure == f"Nothing can be written to the folder “{source.parent}”."


# --- who may name which file


def failure_of(**arguments: Any) -> str:
    task = start(BODY, arguments)
    run_until_idle()
    task.refresh_from_db()
    return task.failure


def test_a_path_on_disk_needs_the_permit_of_the_command_line(source: Path, tmp_path: Path) -> None:
    refusal = "A path on disk can only be given on the command line: upload the file instead."
    permitted: dict[str, Any] = start_on_disk(source, column="country").arguments
    assert failure_of(path=str(source), output=str(tmp_path / "out.csv")) == refusal
    assert failure_of(**{**permitted, "output": str(tmp_path / "other.csv")}) == refusal
    assert failure_of(**{**permitted, "path": "/etc/passwd"}) == refusal
    assert failure_of(**{**permitted, "permit": permitted["permit"][:-1]}) == refusal


def test_the_permit_is_shown_to_nobody(source: Path) -> None:
    task = start_on_disk(source, column="country")
    assert task.masked_arguments["permit"] != task.arguments["permit"]
    assert task.masked_arguments["path"] == str(source)


def test_an_upload_is_only_a_file_that_was_stored_here(tmp_path: Path) -> None:
    (tmp_path / "secret.csv").write_text("country\nPeru\n")
    mine = upload(b"country\nPeru\n").arguments["file"]
    forged = {**mine, "stored_file": "../secret.csv"}
    assert "no file that was stored here" in failure_of(file=forged)
    assert failure_of(file=mine, path="/etc/passwd").startswith("Either upload a file or name paths")
    assert failure_of(file=mine) == ""
    assert failure_of() == "A path on disk can only be given on the command line: upload the file instead."


def test_an_upload_that_is_gone_is_said_to_be() -> None:
    task = upload(b"country\nPeru\n")
    default_storage.delete(task.arguments["file"]["stored_file"])
    run_until_idle()
    task.refresh_from_db()
    assert task.failure == "There is no file “people.csv”."


def test_two_uploads_of_one_name_stay_apart() -> None:
    tasks = [upload(f"country\n{name}\n".encode()) for name in ("Peru", "Chile")]
    run_until_idle()
    assert [stored(task) for task in tasks] == [
        b"country,country_code\nPeru,PE\n",
        b"country,country_code\nChile,CL\n",
    ]
    outputs = [result_of(task)["output"] for task in tasks]
    assert [(output["name"], output["size"]) for output in outputs] == [
        ("people-with-country-codes.csv", 29),
        ("people-with-country-codes.csv", 30),
    ]


def test_a_storage_without_a_disk_works_too(settings: Settings) -> None:
    memory = {"BACKEND": "django.core.files.storage.InMemoryStorage"}
    settings.STORAGES = {**settings.STORAGES, "default": memory}
    task = upload(b"country\nPeru\n")
    run_until_idle()
    assert stored(task) == b"country,country_code\nPeru,PE\n"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"land\nPeru\n", "There is no column “country”: choose one of “land”."),
        (b"", "The submitted file is empty."),
        (b"\xff\n", "The file is not UTF-8 (byte 1, on line 1): save it as UTF-8 and try again."),
    ],
)
def test_the_form_refuses_what_the_header_tells(data: bytes, message: str) -> None:
    form = UploadForm({"column": "country"}, uploaded(data))
    assert form.errors == {"file": [message]}


def test_what_the_form_takes_is_worked() -> None:
    form = UploadForm({"column": "Land"}, uploaded(b"name,land\nAnn,Peru\n"))
    assert form.is_valid()
    task = start_upload(form.cleaned_data["file"], column=form.cleaned_data["column"])
    run_until_idle()
    assert stored(task) == b"name,land,country_code\nAnn,Peru,PE\n"


def test_one_task_at_a_time_may_write_an_output(source: Path) -> None:
    task = begin(source)
    with pytest.raises(ConcurrencyKeyHeld) as held:
        start_on_disk(source, column="name")
    assert held.value.task == task


# --- size


@pytest.mark.slow
def test_a_hundred_thousand_rows_with_300_unclear_names_take_linear_time_and_a_small_row(tmp_path: Path) -> None:
    def seconds(rows: int) -> tuple[float, Task]:
        path = tmp_path / f"{rows}.csv"
        answers = big_file(path, rows)
        started = time.perf_counter()
        task = begin(path)
        read = time.perf_counter() - started
        give(task, answers)
        started = time.perf_counter()
        run_until_idle()
        taken = read + time.perf_counter() - started
        task.refresh_from_db()
        assert Path(result_of(task)["output"]).read_bytes() == expected_output(path.read_bytes(), answers)
        assert (result_of(task)["rows"], result_of(task)["asked"]) == (rows, 300)
        assert_each_name_once(task, path.read_bytes(), answers)
        return taken, task

    for name in big_file(tmp_path / "warm.csv", 1):
        decide(name)  # both measured ones find the cache filled
    few, _task = seconds(20_000)
    many, task = seconds(100_000)
    assert many < 30
    assert many < 5 * few  # 300 questions alone take most of the few: room for noise, not for a quadratic part
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_column_size(task.*) FROM supervision_task AS task WHERE id = %s", [str(task.pk)])
        stored = cursor.fetchone()[0]
    assert len(json.dumps(task.locked_decisions)) < 48 * 1024
    assert stored < 64 * 1024
