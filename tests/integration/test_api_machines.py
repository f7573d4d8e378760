"""Events of machines by the API: the owner's of the subject, by the host's word, and nobody else's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.cache import cache
from django.db import connection
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from supervision.engines.machines import Machine, Transition
from tests.integration.admin_work import person
from tests.integration.api_work import Caller, customer
from tests.integration.machine_work import Ticket, forgetting, tables

pytestmark = pytest.mark.django_db

SUBJECTS = override_settings(SUPERVISION={"SUBJECTS": f"{__name__}.subjects_of"})
MALFORMED = ("garbage", "%00", "%ED%A0%80", "9" * 500, "-1", "’ OR 1=1")


def subjects_of(user: Any, machine: str) -> Any:
    if machine == "api.ticket":
        return Ticket.objects.filter(text=user.username)
    return [f"of {user.username}"] if machine == "api.parcel" else None


@pytest.fixture(autouse=True)
def _world() -> Iterator[None]:
    cache.clear()
    with tables(), forgetting():
        yield


@SUBJECTS
def test_an_owner_reads_the_events_of_their_subjects_and_of_no_others() -> None:
    moves = [Transition("new", "OPEN", "open"), Transition("open", "CLOSE", "closed")]
    tickets = Machine("api.ticket", model=Ticket, transitions=moves)
    parcels = Machine("api.parcel", transitions=moves, initial="new")
    ann, bob, viewer = customer("ann"), customer("bob"), person("viewer", "view_standing")
    hers: dict[str, dict[str, Any]] = {}
    for user in (ann, bob):
        ticket = Ticket.objects.create(text=user.username)
        for machine, subject in ((tickets, ticket), (parcels, f"of {user.username}")):
            machine.send(subject, "OPEN", actor=user, note=f"canary-{user}", payload={"inner": "canary"})
            machine.send(subject, "CLOSE", actor=user)
            hers.setdefault(machine.name, {})[user.username] = getattr(subject, "pk", subject)
    for name, keys in hers.items():
        shown = Caller(ann).get(f"machines/{name}/{keys['ann']}/").json()
        assert (shown["state"], shown["generation"], shown["subject"]) == ("closed", 2, str(keys["ann"]))
        events = Caller(ann).get(f"machines/{name}/{keys['ann']}/events/", page_size=1)
        (newest,) = events.json()["results"]
        assert (newest["event"], newest["from_state"], newest["to_state"], newest["actor"]) == (
            "CLOSE", "open", "closed", "ann")  # fmt: skip
        older = Caller(ann).client.get(events.json()["next"]).json()["results"][0]
        assert older["note"] == "canary-ann"
        assert "payload" not in older
        assert Caller(viewer).get(f"machines/{name}/{keys['ann']}/events/").status_code == 200
        for what in ("", "events/"):
            told = set()
            for key in (keys["bob"], "999999", *MALFORMED):
                caller = Caller(ann)
                with CaptureQueriesContext(connection) as seen:
                    response = caller.get(f"machines/{name}/{key}/{what}")
                headers = tuple(sorted((key, value) for key, value in response.items() if key != "Date"))
                told.add((response.status_code, response.content, headers, len(seen)))
            assert len(told) == 1, told
            assert next(iter(told))[0] == 404
    assert Caller(ann).get("machines/no.such/7/").status_code == 404
    assert Caller(person("clerk")).get(f"machines/api.parcel/{hers['api.parcel']['ann']}/").status_code == 404


def test_without_the_hosts_word_nothing_is_anybodys() -> None:
    parcels = Machine("api.parcel", transitions=[Transition("new", "OPEN", "open")], initial="new")
    parcels.send("of ann", "OPEN")
    assert Caller(customer("ann")).get("machines/api.parcel/of ann/").status_code == 404
    assert Caller().get("machines/api.parcel/of ann/").status_code == 403
