"""What the control room says of tasks: every state and reason has words, and a sign with a shape of its own."""

from datetime import UTC, datetime, timedelta
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from supervision import signs, wording
from supervision.kernel.states import ENDINGS, TERMINAL, Reason, State, first_word

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def task(**more: Any) -> Any:
    state = more.get("current_state", State.PARKED)
    row = {
        "current_state": state, "watchdog_stop_reason": "", "ending": "", "pause_requested_at": None, "wake_at": None,
        "db_now": NOW, "is_terminal": state in TERMINAL,
    }  # fmt: skip
    return SimpleNamespace(**{**row, **more})


@pytest.mark.parametrize("reason", [each for each in Reason if each != Reason.EXPIRED])
def test_every_reason_has_words_of_its_own(reason: Reason) -> None:
    words = wording.reason(reason.of("detail"))
    assert words != reason.of("detail")
    assert "_" not in words
    assert wording.reason(reason.value)


def test_an_expiry_says_what_the_task_waited_for() -> None:
    assert wording.reason("expired:awaiting_user_answer:budget") == "ran out of time: waits for an answer to “budget”"
    assert wording.reason("expired") == "ran out of time"


def test_an_unknown_reason_is_shown_as_it_is() -> None:
    assert wording.reason("something_new:x") == "something_new:x"


def test_braces_in_a_detail_are_only_text() -> None:
    assert wording.reason("awaiting_user_answer:{0}{x}") == "waits for an answer to “{0}{x}”"


def test_every_situation_has_a_shape_of_its_own() -> None:
    found = set()
    reasons = [reason.of("x") for reason in Reason]
    for state, ending, paused in product(State, ["", *sorted(ENDINGS)], [None, NOW]):
        for reason in reasons:
            row = task(current_state=state, ending=ending, pause_requested_at=paused, watchdog_stop_reason=reason)
            situation = wording.situation(row)
            assert situation.label
            found.add(situation.sign)
    shapes = {signs.shape(name) for name in found}
    assert len(shapes) == len(found)


def test_every_task_has_a_next_step() -> None:
    for state, ending, paused, wake in product(State, ["", "cancelled"], [None, NOW], [None, NOW, NOW + timedelta(1)]):
        for reason in [Reason.SLEEPING, Reason.UNKNOWN_BODY, Reason.AWAITING_USER_ANSWER]:
            row = task(
                current_state=state, ending=ending, pause_requested_at=paused, wake_at=wake, watchdog_stop_reason=reason
            )
            for pending, beating in product([0, 1, 2], [True, False]):
                assert wording.next_step(row, pending=pending, is_beating=beating).endswith((".", "!"))


@pytest.mark.parametrize(
    ("away", "words"),
    [
        (timedelta(seconds=1), "now"), (timedelta(seconds=40), "in 40 s"), (timedelta(minutes=-3), "3 min ago"),
        (timedelta(hours=-3), "3 h ago"), (timedelta(hours=47), "in 47 h"), (timedelta(days=-2), "2 days ago"),
        (timedelta(days=400), "in 400 days"),
    ],
)  # fmt: skip
def test_a_moment_is_said_as_people_say_it(away: timedelta, words: str) -> None:
    assert wording.moment(NOW + away, NOW) == words


def test_the_first_word_is_a_filter_s_name() -> None:
    assert wording.reason_word(first_word("awaiting_user_answer:x")) == "awaiting user answer"
