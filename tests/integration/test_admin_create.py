"""Starting work by a form: made from annotations or the author's own; values arrive as annotated."""

from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django import forms
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client, override_settings
from django.urls import reverse

from supervision.engines import Context, StoredFile, registry, start
from supervision.engines.bodies import body
from supervision.errors import InvalidArguments, NotStorable
from supervision.kernel import files
from supervision.kernel.models import Task
from supervision.testing import run_until_idle
from tests.integration.admin_work import Colour, bodies, fresh, person

pytestmark = pytest.mark.django_db

ADD = "/admin/supervision/task/add/"


@pytest.fixture(autouse=True)
def _bodies(tmp_path: Path) -> Iterator[None]:
    with bodies(), override_settings(MEDIA_ROOT=str(tmp_path)):
        yield


@pytest.fixture
def boss() -> User:
    return User.objects.create(username="boss", is_staff=True, is_superuser=True)


@pytest.fixture
def client(boss: User) -> Client:
    client = Client()
    client.force_login(boss)
    return client


def typed(**more: Any) -> dict[str, Any]:
    return {"a-amount": "12.50", "a-day": "2026-12-24", "a-colour": "BLUE", "a-size": "large", **more}


def test_the_bodies_that_are_meant_for_a_form_are_offered(client: Client) -> None:
    html = client.get(ADD).content.decode()
    assert "Greet somebody" in html
    assert "Asks how to greet, then greets." in html
    assert "admin.code_only" not in html
    assert client.get(f"{ADD}?body=admin.code_only").status_code == 404
    assert client.get(f"{ADD}?body=os.system").status_code == 404


def test_values_arrive_in_the_body_as_annotated_and_a_file_is_kept(client: Client, boss: User) -> None:
    upload = SimpleUploadedFile("../../rates äöü.csv", b"a,b")
    data = typed(**{"a-owner": boss.pk, "a-tags": "one\n\n two ", "a-urgent": "on", "a-upload": upload})
    response = client.post(f"{ADD}?body=admin.typed", data)
    task = Task.objects.get()
    assert response["Location"] == reverse("admin:supervision_task_change", args=[task.pk])
    assert task.arguments["amount"] == "12.50"
    assert task.arguments["day"] == "2026-12-24"
    assert task.arguments["colour"] == "blue"
    assert (task.owner, task.created_by_ref) == (boss, f"user:{boss.pk}")
    run_until_idle()
    task = fresh(task)
    assert task.failure == ""
    assert task.result is not None
    copy = task.result.pop("copy")
    assert task.result == {
        "amount": "Decimal", "day": "date", "colour": "BLUE", "size": "large", "owner": "boss",
        "tags": ["one", "two"], "urgent": True, "upload": "a,b",
    }  # fmt: skip
    page = client.get(response["Location"]).content.decode()
    assert "rates äöü.csv" in page
    assert "stored_file" not in page
    assert task.subject == "rates äöü.csv"
    download = client.get(reverse("admin:supervision_task_file", args=[task.pk, 0]))
    assert b"".join(download.streaming_content) == b"copied"  # type: ignore[attr-defined]
    assert "attachment" in download["Content-Disposition"]
    assert copy["name"] == "copy.txt"


def test_a_file_of_a_task_is_for_those_who_may_view_it(client: Client) -> None:
    client.post(f"{ADD}?body=admin.typed", typed(**{"a-upload": SimpleUploadedFile("a.csv", b"a")}))
    address = reverse("admin:supervision_task_file", args=[Task.objects.get().pk, 0])
    other = Client()
    other.force_login(person("clerk", "pause_task"))
    assert other.get(address).status_code == 403
    assert client.get(address.replace("/0/", "/1/")).status_code == 404


def test_what_is_wrong_is_marked_and_what_was_typed_stays(client: Client) -> None:
    response = client.post(f"{ADD}?body=admin.typed", typed(**{"a-amount": "many", "a-tags": "<b>mine</b>"}))
    assert response.status_code == 422
    html = response.content.decode()
    assert "Enter a number." in html
    assert "&lt;b&gt;mine&lt;/b&gt;" in html
    assert not Task.objects.exists()


def test_a_double_click_starts_one(client: Client) -> None:
    once = client.get(f"{ADD}?body=admin.greet").context["once"]
    for _click in range(2):
        client.post(f"{ADD}?body=admin.greet", {"a-name": "Ada", "once": once})
    assert Task.objects.count() == 1


def test_a_refused_start_leaves_no_upload_behind(client: Client, tmp_path: Path) -> None:
    with override_settings(SUPERVISION={"MAX_ARGUMENTS_BYTES": 10}):
        response = client.post(f"{ADD}?body=admin.typed", typed(**{"a-upload": SimpleUploadedFile("a.csv", b"a")}))
    assert "the limit is 10" in response.content.decode()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    with override_settings(SUPERVISION={"MAX_UPLOAD_BYTES": 3}):
        response = client.post(f"{ADD}?body=admin.typed", typed(**{"a-upload": SimpleUploadedFile("a.csv", b"aaaa")}))
    assert "the limit is 3" in response.content.decode()


def test_a_sensitive_argument_is_typed_blind_and_never_shown_again(client: Client) -> None:
    html = client.get(f"{ADD}?body=admin.greet").content.decode()
    assert 'type="password"' in html
    response = client.post(f"{ADD}?body=admin.greet", {"a-name": "", "a-token": "s3cr3t-canary"})
    assert "s3cr3t-canary" not in response.content.decode()


def test_rows_of_a_model_are_offered_only_to_those_who_may_view_them() -> None:
    other = Client()
    other.force_login(person("starter", "add_task", "view_task"))
    html = other.get(f"{ADD}?body=admin.typed").content.decode()
    assert "You may not view any users." in html
    assert ">starter<" not in html.split('name="a-owner"')[1].split("</select>")[0]


def test_the_authors_own_form_is_used() -> None:
    class RangeForm(forms.Form):
        first = forms.IntegerField()
        last = forms.IntegerField()

        def clean(self) -> Any:
            if self.cleaned_data.get("first", 0) > self.cleaned_data.get("last", 0):
                raise forms.ValidationError("The first is after the last.")

    @body("admin.range", form=RangeForm)
    def in_range(task: Context, *, first: int, last: int) -> list[int]:
        return list(range(first, last))

    client = Client()
    client.force_login(User.objects.create(username="root", is_staff=True, is_superuser=True))
    response = client.post(f"{ADD}?body=admin.range", {"a-first": "3", "a-last": "1"})
    assert "The first is after the last." in response.content.decode()
    client.post(f"{ADD}?body=admin.range", {"a-first": "1", "a-last": "3"})
    run_until_idle()
    assert Task.objects.get().result == [1, 2]
    registry.unregister("admin.range")


def test_an_annotation_without_a_field_is_refused_at_registration() -> None:
    class Thing:
        pass

    with pytest.raises(TypeError, match="parameter it: Thing"):

        @body("admin.refused")
        def refused(task: Context, *, it: Thing) -> None: ...

    with pytest.raises(TypeError, match="parameter it"):

        @body("admin.refused2")
        def refused2(task: Context, *, it: "Missing") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    @body("admin.fine", form=None)
    def fine(task: Context, *, it: Thing) -> None: ...

    class Short(forms.Form):
        other = forms.CharField()

    with pytest.raises(TypeError, match="takes no other"):

        @body("admin.refused3", form=Short)
        def refused3(task: Context, *, it: str = "") -> None: ...

    registry.unregister("admin.fine")


def test_code_may_pass_what_the_annotations_say() -> None:
    task = start("admin.typed", {"amount": Decimal("1.10"), "day": date(2026, 1, 2), "colour": Colour.RED})
    assert task.arguments == {"amount": "1.10", "day": "2026-01-02", "colour": "red"}
    with pytest.raises(InvalidArguments, match="day='soon' is no date"):
        start("admin.typed", {"amount": "1", "day": "soon", "colour": "red"})
    with pytest.raises(InvalidArguments, match="colour='mauve' is no Colour"):
        start("admin.typed", {"amount": "1", "day": "2026-01-02", "colour": "mauve"})


def test_a_row_that_is_gone_fails_the_task_in_words(boss: User) -> None:
    gone = User.objects.create(username="gone")
    task = start("admin.typed", {"amount": 1, "day": "2026-01-02", "colour": "red", "owner": gone})
    gone.delete()
    run_until_idle()
    assert "which the argument “owner” names, doesn't exist" in fresh(task).failure


def test_a_forged_reference_opens_nobody_elses_file(client: Client) -> None:
    forged = {"stored_file": "secret/other.csv", "name": "x", "size": 1, "seal": "no"}
    task = start("admin.typed", {"amount": 1, "day": "2026-01-02", "colour": "red", "upload": forged})
    run_until_idle()
    assert "no file that was stored here" in fresh(task).failure
    assert client.get(reverse("admin:supervision_task_file", args=[task.pk, 0])).status_code == 404
    with pytest.raises(NotStorable):
        files.resolve({"stored_file": "x"})


def test_datetimes_and_ids_are_converted_too() -> None:
    seen: dict[str, Any] = {}

    @body("admin.more")
    def more(
        task: Context, *, at: datetime, key: UUID, colours: list[Colour], stored: StoredFile | None = None
    ) -> None:
        seen.update(at=at, key=key, colours=colours)

    start("admin.more", {"at": "2026-01-02T03:04:05+00:00", "key": str(UUID(int=7)), "colours": ["red", "BLUE"]})
    run_until_idle()
    assert isinstance(seen["at"], datetime)
    assert seen["key"] == UUID(int=7)
    assert seen["colours"] == [Colour.RED, Colour.BLUE]
    registry.unregister("admin.more")
