"""Which names are decided, which are asked, and what is offered."""

import json
import time
from pathlib import Path

import pycountry
import pytest

from project.countries import MAX_CANDIDATES, Decided, Unclear, decide
from project.csv_source import open_source


def offered(name: str) -> list[str]:
    """Return the codes offered for ``name``; fail if it is decided."""
    decision = decide(name)
    assert isinstance(decision, Unclear), f"{name} is decided: {decision}"
    return [candidate.code for candidate in decision.candidates]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("DE", "DE"),
        ("deu", "DE"),
        ("Germany", "DE"),
        ("Federal Republic of Germany", "DE"),
        ("Bolivia", "BO"),
        ("Iran", "IR"),
        ("Iran, Islamic Republic of", "IR"),
        ("Republic of Korea", "KR"),
        ("South Korea", "KR"),
        ("Falkland Islands", "FK"),
        ("USA", "US"),
        ("U.S.A.", "US"),
    ],
)
def test_codes_and_exact_names_are_decided(name: str, code: str) -> None:
    assert decide(name) == Decided(code)


@pytest.mark.parametrize(
    "name", ["Côte d'Ivoire", "COTE D’IVOIRE", "cote divoire", "  Côte   d`Ivoire ", "Co\u0302te d'Ivoire"]
)
def test_case_spaces_punctuation_and_diacritics_make_no_difference(name: str) -> None:
    assert decide(name) == Decided("CI")


def test_the_article_and_the_ampersand_make_no_difference() -> None:
    assert decide("The Gambia") == Decided("GM")
    assert decide("Antigua & Barbuda") == Decided("AG")


def test_every_code_is_decided_as_itself() -> None:
    for country in pycountry.countries:
        assert decide(country.alpha_2) == decide(country.alpha_3) == Decided(country.alpha_2)


def test_no_official_name_is_decided_as_another_country() -> None:
    for country in pycountry.countries:
        for name in (country.name, getattr(country, "official_name", country.name)):
            decision = decide(name)
            if isinstance(decision, Decided):
                assert decision.code == country.alpha_2, name


def test_only_these_short_names_are_asked_although_they_are_exact() -> None:
    asked = {country.name for country in pycountry.countries if isinstance(decide(country.name), Unclear)}
    assert asked == {"Congo", "Georgia", "Guinea", "Samoa", "Sudan"}


def test_guinea_is_asked_because_four_countries_carry_the_word() -> None:
    assert offered("Guinea") == ["GN", "GW", "GQ", "PG"]


def test_korea_and_congo_are_asked_between_their_two_halves() -> None:
    assert offered("Korea") == ["KR", "KP"]
    assert offered("Congo") == ["CG", "CD"]


def test_a_name_without_its_qualifier_is_asked() -> None:
    assert offered("Virgin Islands") == ["VG", "VI"]
    assert offered("Saint Martin")[:2] == ["SX", "MF"]


@pytest.mark.parametrize(("name", "code"), [("Niger", "NE"), ("Dominica", "DM"), ("India", "IN"), ("Ireland", "IE")])
def test_parts_of_words_and_of_formal_names_ask_nothing(name: str, code: str) -> None:
    assert decide(name) == Decided(code)


def test_the_minor_outlying_islands_do_not_make_the_united_states_unclear() -> None:
    assert decide("United States") == Decided("US")


@pytest.mark.parametrize(
    ("name", "first"), [("Holland", "NL"), ("UK", "GB"), ("Russia", "RU"), ("Macedonia", "MK"), ("Burma", "MM")]
)
def test_everyday_names_are_asked_with_the_likeliest_first(name: str, first: str) -> None:
    assert offered(name)[0] == first


@pytest.mark.parametrize(("name", "first"), [("Holand", "NL"), ("Germny", "DE"), ("Swizerland", "CH"), ("Timor", "TL")])
def test_misspelt_and_partial_names_are_asked_with_the_likeliest_first(name: str, first: str) -> None:
    assert offered(name)[0] == first


@pytest.mark.parametrize("name", ["", "   ", "-", "\u00a0", "the"])
def test_blank_names_are_asked_without_candidates(name: str) -> None:
    assert offered(name) == []


@pytest.mark.parametrize("name", ["xqzzy", "12345", "of", "日本", "\x00", "\ud800", "a" * 100_000])
def test_gibberish_is_asked_without_candidates(name: str) -> None:
    assert offered(name) == []


@pytest.mark.parametrize("name", ["Republic", "Islands", "Saint", "United", "South", "an", "land"])
def test_at_most_ten_candidates_are_offered_and_each_once(name: str) -> None:
    codes = offered(name)
    assert len(codes) == len(set(codes)) <= MAX_CANDIDATES


def test_candidates_are_labelled_with_the_common_name() -> None:
    decision = decide("Korea")
    assert isinstance(decision, Unclear)
    assert [candidate.label for candidate in decision.candidates] == ["South Korea", "North Korea"]


def test_a_thousand_different_unclear_names_take_less_than_three_seconds() -> None:
    started = time.process_time()
    for number in range(1000):
        decide(f"Republic of Nowhere {number}")
    assert time.process_time() - started < 3


def test_the_example_answers_cover_exactly_what_the_example_file_asks() -> None:
    data = Path(__file__).parents[2] / "project" / "data"
    answers = json.loads((data / "answers.json").read_text())
    with (data / "customers.csv").open("rb") as file:
        source = open_source(file, "country", max_bytes=1_000_000)
        names = {source.name(row) for row in source.rows()}
    assert {name for name in names if isinstance(decide(name), Unclear)} == set(answers)
    assert all(decide(code) == Decided(code) for code in answers.values())
