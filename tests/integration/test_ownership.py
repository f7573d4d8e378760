"""Whose a task is: the person's, their organisations', and nobody else's."""

from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, Group, User
from django.db import connection
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from supervision.errors import NotEntitled
from supervision.kernel import creation, forks, lifecycle, ownership, questions, sight
from supervision.kernel.question_form import Ask
from supervision.wording import outcome
from tests.integration import rows
from tests.integration.admin_work import person

pytestmark = pytest.mark.django_db

GARBAGE = ("", "7", "garbage", "\x00", "x" * 10_000, "00000000-0000-0000-0000-00000000000g", "\ud800" * 36, None, 7)


def groups_of(user: Any) -> Any:
    return user.groups.all()


def only_anns(user: Any, tasks: Any) -> Any:
    return tasks.filter(owner__username="ann")


ORGANISATIONS = override_settings(SUPERVISION={"OWNERS": f"{__name__}.groups_of"})


def test_each_sees_their_own_and_staff_with_the_permission_all() -> None:
    ann, bob = person("ann", staff=False), person("bob", staff=False)
    hers, his = rows.due(owner=ann), rows.due(owner=bob)
    clerk, viewer = person("clerk"), person("viewer", "view_task")
    gone = User.objects.create(username="gone", is_active=False)
    late = rows.due(owner=gone)
    assert {task.pk for task in sight.readable(ann)} == {hers}
    assert {task.pk for task in sight.readable(viewer)} == {hers, his, late}
    for nobody in (clerk, gone, AnonymousUser()):
        assert not sight.readable(nobody)
        assert not sight.questions(nobody)
    assert not sight.readable(person("customer", "view_task", staff=False))
    with override_settings(SUPERVISION={"VISIBLE_TASKS": f"{__name__}.only_anns"}):
        assert {task.pk for task in sight.readable(viewer)} == {hers}
        assert {task.pk for task in sight.readable(bob)} == {his}


def test_foreign_missing_and_malformed_ids_are_one_answer_at_one_price() -> None:
    ann = person("ann", staff=False)
    foreign = rows.waiting(owner=person("bob", staff=False))
    for find, pk in ((sight.find_task, foreign.pk), (sight.find_question, foreign.questions["q"])):
        counts = set()
        for raw in (str(pk), "0191a2b3-0000-7000-8000-000000000000", *GARBAGE):
            asker = User.objects.get(pk=ann.pk)  # as a request loads them: nothing known of their permissions
            with CaptureQueriesContext(connection) as seen:
                assert find(asker, raw) is None, raw
            counts.add(len(seen))
        assert len(counts) == 1, find


@ORGANISATIONS
def test_an_organisations_task_is_its_members_and_stays_so_in_a_retry() -> None:
    ann = person("ann", staff=False, groups=("acme",))
    bob = person("bob", staff=False, groups=("other",))
    acme = Group.objects.get(name="acme")
    task = creation.create(rows.BODY, owner=acme, by=ann)
    assert (task.owner_id, task.owner_ref) == (None, f"group:{acme.pk}")
    lifecycle.cancel(task.pk, by=ann)
    fork = forks.fork(task.pk, by=ann)
    assert {each.pk for each in sight.readable(ann)} == {task.pk, fork.pk}
    assert not sight.readable(bob)
    assert sight.may(ann, "cancel_task", fork)
    assert not sight.may(bob, "cancel_task", fork)


@ORGANISATIONS
def test_members_answer_for_their_organisation_unless_it_is_kept_from_owners() -> None:
    ann = person("ann", staff=False, groups=("acme",))
    bob = person("bob", staff=False, groups=("other",))
    asks = [Ask("open", "?", answerable_by="owner"), Ask("kept", "?", answerable_by="group:acme", not_by="owner")]
    waiting = rows.waiting(asks=asks, owner=Group.objects.get(name="acme"))
    from supervision.kernel import entitlement
    from supervision.kernel.models import Question

    assert [each.key for each in entitlement.answerable(Question.objects.all(), ann)] == ["open"]
    with pytest.raises(NotEntitled):
        questions.answer(waiting.questions["kept"], "x", by=ann)
    with pytest.raises(NotEntitled):
        questions.answer(waiting.questions["open"], "x", by=bob)
    assert questions.answer(waiting.questions["open"], "x", by=ann).answered_by_ref == "ann"


def test_staff_act_by_permission_and_owners_on_their_own() -> None:
    ann, pauser = person("ann", staff=False), person("pauser", "view_task", "pause_task")
    task = rows.fresh(rows.due(owner=ann))
    assert sight.may(ann, "cancel_task", task)
    assert sight.may(pauser, "pause_task", task)
    assert not sight.may(pauser, "cancel_task", task)
    assert not sight.may(person("bob", staff=False), "pause_task", task)


def test_what_a_verb_did_is_said_truthfully() -> None:
    running, idle = rows.running(), rows.due()
    assert outcome("pause", lifecycle.pause(running.pk)) == "pausing after the current step"
    assert outcome("pause", lifecycle.pause(idle)) == "paused"
    assert outcome("resume", lifecycle.resume(idle)) == "goes on"
    assert outcome("cancel", lifecycle.cancel(running.pk)) == "being cancelled after the current step"
    assert outcome("cancel", lifecycle.cancel(idle)) == "cancelled"
    waiting = rows.waiting().pk
    lifecycle.pause(waiting)
    assert outcome("resume", lifecycle.resume(waiting)) == "no longer paused; it still waits"
    assert outcome("cancel", lifecycle.cancel(waiting)) == "being cancelled: a worker lets it clean up first"
    assert outcome("expire", lifecycle.expire(rows.waiting().pk, by="ann")) == "expired"
    assert ownership.keys(AnonymousUser()) == []
