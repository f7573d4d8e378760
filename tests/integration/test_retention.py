"""Old tasks leave for an archive, whole and once; a person's data is erased; their files go with them."""

import json
import resource
import stat
import tracemalloc
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.contrib.auth.models import User
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from supervision.checks import check_settings
from supervision.engines import Context, registry, start
from supervision.engines.bodies import body
from supervision.errors import ArchiveUnusable
from supervision.kernel import archive, creation, ends, files, forks, lease, lifecycle, retention, signals_in
from supervision.kernel.ages import age
from supervision.kernel.archive import Archive
from supervision.kernel.models import ERASED, LogEntry, Question, Task, Tombstone
from supervision.testing import answer, run_until_idle, travel
from tests.integration import rows

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _world(tmp_path: Path) -> Iterator[None]:
    @body("keep.asks", sensitive=("token",))
    def asks(task: Context, *, token: str = "", document: files.StoredFile | None = None) -> Any:
        task.log(f"using {token}")
        return task.ask("colour", "Which colour?")

    with override_settings(MEDIA_ROOT=tmp_path / "media"):
        yield
    registry.unregister("keep.asks")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "archive.jsonl"


def family() -> UUID:
    """An ended task with a child, a question and a signal."""
    parent = rows.running(idempotency_key=str(uuid4()))
    signals_in.send(parent.pk, "paid", {"eur": 400})
    child = creation.create(rows.BODY, parent_id=parent.pk, parent_step="child").pk
    taken = lease.take(child, 0, rows.WORKER)
    assert taken is not None
    ends.complete(child, taken.lease, "done")
    ends.complete(parent.pk, parent.lease, {"ok": True})
    return parent.pk


def prune(*arguments: Any, **options: Any) -> str:
    output = options.pop("stdout", StringIO())
    call_command("supervision_prune", *map(str, arguments), stdout=output, **options)
    said: str = output.getvalue()
    return said


def lines(file: Path, kind: str = "entry") -> list[Any]:
    return [json.loads(line)[kind] for line in file.read_text().splitlines() if line.startswith(f'{{"{kind}": ')]


# --- prune ------------------------------------------------------------------------------------------------------------


def test_old_families_leave_for_the_archive_and_young_ones_stay(file: Path) -> None:
    old = family()
    entries = list(LogEntry.objects.order_by("task_id", "sequence_num").values_list("task_id", "sequence_num", "event"))
    with travel(timedelta(days=80)):
        young, living = family(), rows.due()
    with travel(timedelta(days=91)):
        assert prune("--older-than", "90d", "--archive", file) == "Removed: 1 families, 2 tasks.\n"
    assert set(Task.objects.filter(parent=None).values_list("pk", flat=True)) == {young, living}
    assert not LogEntry.objects.filter(task_id=old).exists()
    assert [(UUID(each["task_id"]), each["sequence_num"], each["event"]) for each in lines(file)] == entries
    assert [each["result"] for each in lines(file, "task")] == [{"ok": True}, "done"]
    assert lines(file, "signal")[0]["payload"] == {"eur": 400}
    assert lines(file, "batch")[0]["tasks"] == 2
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_each_body_is_kept_as_long_as_the_policy_says(file: Path) -> None:
    for name in ("report", "invoice", "other"):
        pk = creation.create(name).pk
        taken = lease.take(pk, 0, rows.WORKER)
        assert taken is not None
        ends.complete(pk, taken.lease)

    def left(days: int) -> set[str]:
        with travel(timedelta(days=days)):
            prune("--archive", file)
        return set(Task.objects.values_list("body", flat=True))

    policy = {"report": timedelta(days=7), "invoice": None, "*": "2w"}
    with override_settings(SUPERVISION={"RETENTION": policy}):
        assert check_settings(None) == []
        assert left(6) == {"report", "invoice", "other"}
        assert left(8) == {"invoice", "other"}
        assert left(15) == {"invoice"}
        assert left(5000) == {"invoice"}
    with override_settings(SUPERVISION={"RETENTION": {"report": "7d"}}):
        assert left(5000) == {"invoice"}
        with pytest.raises(CommandError, match="says nothing of invoice"):
            prune("--body", "invoice", "--archive", file)
    assert len(lines(file, "task")) == 2


@pytest.mark.parametrize("wrong", ["90", "d", 90, "1.5d", "-1d", timedelta(days=-1)])
def test_a_wrong_age_is_refused_by_the_check_and_the_command(wrong: Any, file: Path) -> None:
    with override_settings(SUPERVISION={"RETENTION": {"report": wrong}}):
        assert [error.id for error in check_settings(None)] == ["supervision.E011"]
        with pytest.raises(CommandError, match="for example 90d"):
            prune("--archive", file)
    with override_settings(SUPERVISION={"RETENTION": "90d"}):
        assert [error.id for error in check_settings(None)] == ["supervision.E011"]
    assert age("12w") == timedelta(weeks=12)
    assert not file.exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--archive", "x"], "Say how old"),
        (["--older-than", "old", "--archive", "x"], "for example 90d"),
        (["--older-than", "1d"], "--archive --without-archive --dry-run is required"),
        (["--older-than", "1d", "--body", "kepe.asks", "--dry-run"], "Known: .*keep.asks"),
        (["--older-than", "1d", "--archive", "/nowhere/x"], "No such file"),
        (["--older-than", "1d", "--archive", __file__], "something else"),
    ],
)
def test_the_prune_commands_errors_say_what_to_do(arguments: list[str], said: str) -> None:
    before = Path(__file__).read_bytes()
    with pytest.raises(CommandError, match=said):
        prune(*arguments)
    assert Path(__file__).read_bytes() == before
    assert not Path("x").exists()


def test_a_dry_run_counts_and_removes_nothing() -> None:
    family()
    assert prune("--older-than", "0d", "--dry-run") == f"        1  {rows.BODY}\n1 families would be removed.\n"
    assert Task.objects.count() == 2


def test_a_family_of_which_one_lives_is_left_and_keeps_no_other(file: Path) -> None:
    parent = rows.running()
    child = creation.create(rows.BODY, parent_id=parent.pk, parent_step="child").pk
    assert lease.take(child, 0, rows.WORKER)
    ends.complete(parent.pk, parent.lease)
    families = [family(), family()]
    said = prune("--older-than", "0d", "--archive", file)
    assert "Removed: 2 families, 4 tasks." in said
    assert str(parent.pk) in said
    assert {UUID(each["id"]) for each in lines(file, "task")} & {parent.pk, child, *families} == set(families)


def test_sensitive_arguments_are_masked_in_the_archive(file: Path) -> None:
    start("keep.asks", {"token": "s3cr3t-canary"})
    run_until_idle()
    answer(Task.objects.get(), {"colour": "blue"})
    run_until_idle()
    prune("--older-than", "0d", "--archive", file)
    text = file.read_text()
    assert "s3cr3t-canary" not in text
    assert lines(file, "question")[0]["answer"] == "blue"


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_is_shown_only_in_a_terminal(file: Path) -> None:
    family()
    assert "1 of 1 families" in prune("--older-than", "0d", "--archive", file, stdout=Terminal())
    family()
    assert "\r" not in prune("--older-than", "0d", "--archive", file)
    assert len(lines(file, "task")) == 4


# --- the archive after a kill -----------------------------------------------------------------------------------------


def uncommitted(file: Path) -> bytes:
    """An archive whose last batch is of tasks that are still in the tables; the bytes before it."""
    retention.prune(family(), before=_add(file))
    before, next_one = file.read_bytes(), family()
    with transaction.atomic():
        retention.prune(next_one, before=_add(file))
        transaction.set_rollback(True)
    return before


def _add(file: Path) -> Any:
    def add(ids: Any) -> None:
        with Archive(file) as opened:
            opened.add(ids)

    return add


def test_a_last_batch_torn_anywhere_is_taken_back_while_the_tables_have_it(file: Path) -> None:
    before = uncommitted(file)
    whole = file.read_bytes()
    for size in [*range(len(before), len(whole), 41), len(whole)]:
        file.write_bytes(whole[:size])
        with Archive(file):
            assert file.read_bytes() == before
    for size in range(len(before)):  # a first batch, torn
        if size < 12 or size % 397 == 0:
            file.write_bytes(whole[len(before) :][:size])
            with Archive(file):
                assert file.read_bytes() == b""


@pytest.mark.parametrize("chunk", [5, 16, 1 << 16])
def test_an_archive_larger_than_what_is_read_at_once_is_mended_too(
    file: Path, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "_CHUNK", chunk)
    retention.prune(family(), before=_add(file))
    before = file.read_bytes()
    big = rows.running(arguments={"text": "x" * 3 * chunk})
    ends.complete(big.pk, big.lease)
    with transaction.atomic():
        retention.prune(big.pk, before=_add(file))
        transaction.set_rollback(True)
    assert file.stat().st_size > len(before) + 3 * chunk
    with Archive(file):
        assert file.read_bytes() == before


def test_what_only_the_archive_has_is_never_taken_back(file: Path) -> None:
    """Another database's archive, or tasks that an old backup has in another state."""
    uncommitted(file)
    whole = file.read_bytes()
    last = json.loads(next(line for line in reversed(whole.splitlines()) if line.startswith(b'{"task": ')))["task"][
        "id"
    ]
    for pretended in (str(uuid4()).encode(), str(rows.due()).encode()):
        file.write_bytes(whole.replace(last.encode(), pretended))
        changed = file.read_bytes()
        with pytest.raises(ArchiveUnusable, match="neither kept nor removed"):
            Archive(file)
        assert file.read_bytes() == changed


def test_two_prunes_do_not_write_one_archive(file: Path) -> None:
    with Archive(file), pytest.raises(CommandError, match="another prune"):
        prune("--older-than", "0d", "--archive", file)


def test_a_full_disk_is_said_and_leaves_tables_and_archive_as_they_were(file: Path) -> None:
    retention.prune(family(), before=_add(file))
    before = file.read_bytes()
    large(50, "x" * 10_000)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 100_000, hard))
    try:
        with pytest.raises(CommandError, match="File too large"):
            prune("--older-than", "0d", "--archive", file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert file.read_bytes() == before
    assert Task.objects.count() == 51
    prune("--older-than", "0d", "--archive", file)
    assert len(lines(file, "task")) == 53


def test_an_error_in_the_middle_leaves_nothing_in_the_archive(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    family()

    def fails(ids: Any) -> None:
        raise RuntimeError("no space")

    monkeypatch.setattr(retention.attached()[0], "prune", fails)
    with pytest.raises(RuntimeError):
        prune("--older-than", "0d", "--archive", file)
    assert file.read_bytes() == b""
    assert Task.objects.count() == 2


# --- large families ---------------------------------------------------------------------------------------------------


def large(count: int, text: str) -> UUID:
    parent = rows.running()
    steps = [f"all/{n:06d}" for n in range(count)]
    with transaction.atomic():
        task = Task.objects.get(pk=parent.pk)
        creation.create_many(rows.BODY, [{"text": text}] * count, parent=task, parent_steps=steps)
        Task.objects.filter(parent=task).update(current_state="completed", wake_at=None)
    ends.complete(parent.pk, parent.lease)
    return parent.pk


def test_ten_thousand_children_leave_in_few_statements(file: Path) -> None:
    parent = large(10_000, "x")
    with Archive(file) as opened, CaptureQueriesContext(connection) as queries:
        assert len(retention.prune(parent, before=opened.add)) == 10_001
    assert len(queries) < 50
    assert Tombstone.objects.count() == 10_001
    assert file.read_bytes().count(b'\n{"entry": ') == 10_003


def test_memory_does_not_grow_with_what_is_archived(file: Path) -> None:
    parent = large(2_000, "x" * 10_000)
    tracemalloc.start()
    try:
        with Archive(file) as opened:
            retention.prune(parent, before=opened.add)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak * 3 < file.stat().st_size


# --- files and erasure ------------------------------------------------------------------------------------------------


def uploaded() -> files.StoredFile:
    return files.store(ContentFile(b"passport", "passport.txt"))


def finished(document: files.StoredFile, **options: Any) -> Task:
    task = start("keep.asks", {"document": document.reference}, **options)
    run_until_idle()
    lifecycle.terminate(task.pk, by="ann")
    return task


def test_a_pruned_tasks_files_go_with_it_unless_they_shall_stay(file: Path) -> None:
    document, kept = uploaded(), uploaded()
    finished(document)
    prune("--older-than", "0d", "--archive", file)
    assert not default_storage.exists(document.path)
    finished(kept)
    prune("--older-than", "0d", "--archive", file, "--keep-files")
    assert default_storage.exists(kept.path)


def test_a_file_that_another_task_refers_to_stays() -> None:
    document = uploaded()
    task = finished(document)
    retry = forks.fork(task.pk, by="ann")
    retention.prune(task.pk)
    assert default_storage.exists(document.path)
    lifecycle.terminate(retry.pk, by="ann")
    other = start("keep.asks", {"document": document.reference})
    retention.prune(retry.pk)
    assert default_storage.exists(document.path)
    lifecycle.terminate(other.pk, by="ann")
    retention.prune(other.pk)
    assert not default_storage.exists(document.path)


def test_a_forged_reference_removes_no_file() -> None:
    document = uploaded()
    forged = {**document.reference, "seal": "x"}
    task = rows.running(arguments={"document": forged})
    ends.complete(task.pk, task.lease)
    retention.prune(task.pk)
    assert default_storage.exists(document.path)


def erase(*arguments: Any) -> str:
    output = StringIO()
    call_command("supervision_erase", *map(str, arguments), stdout=output)
    return output.getvalue()


def test_a_persons_data_is_erased_everywhere_and_the_skeleton_stays() -> None:
    ann, bob = (User.objects.create_user(name) for name in ("ann", "bob"))
    document = uploaded()
    tasks = [finished(document, owner=ann), finished(uploaded(), owner=ann), finished(uploaded(), owner=bob)]
    assert "Would be erased: 2" in erase("--user", "ann", "--by", "dpo", "--dry-run")
    assert not Task.objects.filter(arguments=ERASED).exists()
    said = erase("--user", "ann", "--by", "dpo", "--note", "Art. 17", "--no-input")
    assert "2 tasks, and 2 files" in said
    assert "skeleton" in said
    assert not default_storage.exists(document.path)
    assert set(Task.objects.filter(arguments=ERASED).values_list("pk", flat=True)) == {task.pk for task in tasks[:2]}
    assert Question.objects.filter(prompt="").count() == 2
    events = LogEntry.objects.filter(task=tasks[0]).values_list("event", flat=True)
    assert list(events)[:2] == ["task_created", "task_taken"]
    ann.delete()
    assert "Erased before: 2" in erase("--user", tasks[0].owner_ref, "--by", "dpo", "--no-input")


def test_erasing_a_task_reaches_its_children_and_retries() -> None:
    parent = rows.running()
    child = creation.create(rows.BODY, {"name": "Ann"}, parent_id=parent.pk, parent_step="child").pk
    lifecycle.cancel(parent.pk, by="ann")
    ends.end(parent.pk, parent.lease)
    retry = forks.fork(parent.pk, by="ann")
    other = rows.ended()
    with pytest.raises(CommandError, match=f"they or their parents live: {retry.pk}"):
        erase("--task", parent.pk, "--by", "dpo", "--no-input")
    lifecycle.terminate(retry.pk, by="ann")
    scratch = forks.fork(retry.pk, by="ann", from_scratch=True)
    lifecycle.terminate(scratch.pk, by="ann")
    erase("--task", child, "--by", "dpo", "--no-input")
    assert set(Task.objects.filter(arguments=ERASED).values_list("pk", flat=True)) == {parent.pk, child}
    erase("--task", retry.pk, "--by", "dpo", "--no-input")
    assert set(Task.objects.exclude(arguments=ERASED).values_list("pk", flat=True)) == {other}


def test_nothing_is_erased_without_a_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    pk = rows.ended()
    monkeypatch.setattr("builtins.input", lambda question: "y")
    with pytest.raises(CommandError, match="Nothing was erased"):
        erase("--task", pk, "--by", "dpo")
    assert Task.objects.get().result is not None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [([], "whose or which"), (["--user", "anna"], "no user “anna”"), (["--task", uuid4()], "There is no task")],
)
def test_the_erase_commands_errors_say_what_to_do(arguments: list[Any], said: str) -> None:
    with pytest.raises(CommandError, match=said):
        erase(*arguments, "--by", "dpo")
