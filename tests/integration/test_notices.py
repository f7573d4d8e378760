"""Notices: written with what they tell of, delivered to those who may answer, at least once and not twice."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import django
import pytest
from django.contrib.auth.models import Group, Permission, User
from django.db import transaction

from supervision.engines import Context, Retry, registry, start
from supervision.engines.bodies import body
from supervision.kernel import notices
from supervision.kernel.models import Question, Task
from supervision.kernel.notices import Notice
from supervision.testing import answer, run_until_idle, travel
from supervision.worker import postman
from tests.integration.mail_sink import Sink, mail_sink

pytestmark = pytest.mark.django_db


@pytest.fixture
def sink(settings: Any) -> Iterator[Sink]:
    with mail_sink() as sink:
        settings.SUPERVISION = {"NOTIFY": ("mail",), "BASE_URL": "https://example.org"}
        backend = "django.core.mail.backends.smtp.EmailBackend"
        if django.VERSION >= (6, 1):
            options = {"host": "127.0.0.1", "port": sink.port}
            settings.MAILERS = {"default": {"BACKEND": backend, "OPTIONS": options}}
        else:
            settings.EMAIL_BACKEND = backend
            settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", sink.port
        yield sink


@pytest.fixture(autouse=True)
def _bodies() -> Iterator[None]:
    @body("notice.asker", sensitive=("token",))
    def asker(task: Context, *, who: str = "", token: str = "x") -> Any:
        return task.ask("go", f"Go on\r\nBcc: everybody? {token}", answerable_by=who)

    @body("notice.dead")
    def dead(task: Context) -> None:
        def boom() -> None:
            raise OSError("no route")

        task.step("call", boom, retry=Retry(attempts=1))

    yield
    registry.unregister("notice.asker")
    registry.unregister("notice.dead")


@pytest.fixture
def people() -> dict[str, User]:
    made = {name: User.objects.create_user(name, f"{name}@example.org") for name in ("ann", "bob", "eve", "gil")}
    for name, codename in (("ann", "answer_question"), ("bob", "answer_question"), ("eve", "retry_task")):
        made[name].user_permissions.add(Permission.objects.get(codename=codename))
    group = Group.objects.create(name="finance")
    made["gil"].groups.add(group)
    return made


def asked(**arguments: Any) -> Task:
    task = start("notice.asker", arguments)
    run_until_idle()
    return task


def test_those_who_may_answer_are_told_once(sink: Sink, people: dict[str, User]) -> None:
    task = asked(token="s3cr3t-canary")
    assert postman.deliver_due() == 1
    assert postman.deliver_due() == 0
    assert {each["To"] for each in sink.messages} == {"ann@example.org", "bob@example.org"}
    assert len(sink.messages) == 2
    message = sink.messages[0]
    assert message["Bcc"] is None
    question = Question.objects.get(task=task)  # the task is neither's, and they are no staff
    assert f"https://example.org/work/questions/{question.pk}/" in message.get_content()
    assert "s3cr3t-canary" not in message.as_string()


def test_a_group_a_person_or_the_owner_is_told_where_the_author_says_so(sink: Sink, people: dict[str, User]) -> None:
    asked(who="group:finance")
    postman.deliver_due()
    assert [each["To"] for each in sink.messages] == ["gil@example.org"]
    asked(who="user:eve")
    postman.deliver_due()
    assert [each["To"] for each in sink.messages[1:]] == ["eve@example.org"]


def test_who_has_not_answered_is_reminded_and_warned(sink: Sink, people: dict[str, User]) -> None:
    task = asked()
    postman.deliver_due()
    with travel(timedelta(days=1, minutes=1)):
        postman.deliver_due()
    with travel(timedelta(days=6, minutes=1)):
        postman.deliver_due()
    said = sink.subjects("ann@example.org")
    assert len(said) == 3
    assert "still waits" in said[1]
    assert "about to expire" in said[2]
    assert Notice.objects.filter(task=task, settled_at=None).count() == 0


def test_an_answered_question_is_told_to_nobody(sink: Sink, people: dict[str, User]) -> None:
    task = asked()
    answer(task, {"go": "yes"})
    assert postman.deliver_due() == 1
    assert sink.messages == []


def test_a_dead_letter_is_told_to_those_who_may_retry_and_to_its_owner(sink: Sink, people: dict[str, User]) -> None:
    start("notice.dead", owner=people["gil"])
    run_until_idle()
    postman.deliver_due()
    assert {each["To"] for each in sink.messages} == {"eve@example.org", "gil@example.org"}
    assert "no route" in sink.messages[0].get_content()


def test_a_killed_postman_tells_again_only_whom_nothing_records(
    sink: Sink, people: dict[str, User], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException): ...

    asked()
    original = notices.delivered

    def dies(notice: Notice, to: str) -> None:
        original(notice, to)
        raise Killed

    monkeypatch.setattr(notices, "delivered", dies)
    with pytest.raises(Killed):
        postman.deliver_due()
    monkeypatch.undo()
    assert postman.deliver_due() == 0, "claimed by the killed one for a minute"
    with travel(timedelta(minutes=2)):
        assert postman.deliver_due() == 1
    assert sorted(each["To"] for each in sink.messages) == ["ann@example.org", "bob@example.org"]


def test_a_mail_server_that_refuses_is_tried_again_and_the_error_kept(sink: Sink, people: dict[str, User]) -> None:
    task = asked()
    sink.refuses = True
    postman.deliver_due()
    assert "451" in Notice.objects.get(task=task, kind="asked").error
    assert postman.deliver_due() == 0
    sink.refuses = False
    with travel(timedelta(minutes=5)):
        postman.deliver_due()
    assert len(sink.messages) == 2


def test_a_rolled_back_question_tells_nobody(sink: Sink, people: dict[str, User]) -> None:
    with transaction.atomic():
        start("notice.asker")
        transaction.set_rollback(True)
    run_until_idle()
    assert postman.deliver_due() == 0


def test_nobody_is_told_where_no_channel_is_named(settings: Any) -> None:
    settings.SUPERVISION = {}
    asked()
    assert not Notice.objects.exists()


def test_a_project_may_add_a_channel(sink: Sink, people: dict[str, User], settings: Any) -> None:
    said: list[tuple[str, str]] = []

    @postman.channel("chat")
    def chat(notice: Notice, person: User, text: postman.Text) -> None:
        said.append((person.username, text.subject))

    settings.SUPERVISION = {"NOTIFY": ("chat",)}
    task = asked(who="user:ann")
    postman.deliver_due()
    postman._channels.pop("chat")
    assert said == [("ann", "notice.asker asks: Go on Bcc: everybody? x")]
    assert Question.objects.get(task=task).status == "pending"
