"""Deciding which country a name means: its ISO 3166-1 alpha-2 code, or a question for a person."""

import difflib
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import pycountry

MAX_CANDIDATES = 10

# What people write, and whom they mostly mean. That is only likelihood, so these come first among the candidates and
# decide nothing: "Holland" may be two provinces, and "UK" may be a typing error for UA.
_EVERYDAY_NAMES = {
    "america": "US",
    "bosnia": "BA",
    "britain": "GB",
    "burma": "MM",
    "cape verde": "CV",
    "drc": "CD",
    "east timor": "TL",
    "england": "GB",
    "great britain": "GB",
    "holland": "NL",
    "ivory coast": "CI",
    "korea": "KR",
    "macau": "MO",
    "macedonia": "MK",
    "northern ireland": "GB",
    "russia": "RU",
    "saint martin": "SX",
    "scotland": "GB",
    "st martin": "SX",
    "swaziland": "SZ",
    "turkey": "TR",
    "uae": "AE",
    "uk": "GB",
    "vatican": "VA",
    "wales": "GB",
}

# "United States" also stands in "United States Minor Outlying Islands", but nobody means those nine empty islands.
_NEVER_MEANT_BY_HALF_THEIR_NAME = {"UM"}

_MAX_LENGTH = 200  # no country's name is half as long; comparing a whole misplaced text with each would take long
_FUZZY_CUTOFF = 0.72  # "holand" finds "holland" and "poland"; gibberish finds nothing


@dataclass(frozen=True)
class Candidate:
    """A country that a name may mean: its alpha-2 code, and its short English name to show to people."""

    code: str
    label: str


@dataclass(frozen=True)
class Decided:
    """The name means exactly one country, whose alpha-2 code this is."""

    code: str


@dataclass(frozen=True)
class Unclear:
    """A person has to decide; at most ``MAX_CANDIDATES`` candidates, the likeliest first, possibly none."""

    candidates: tuple[Candidate, ...]


def decide(name: str) -> Decided | Unclear:
    """Decide which country ``name`` means.

    It is decided when it is one country's alpha-2 or alpha-3 code or its short, official or common name. Case, spaces,
    punctuation, diacritics and the word "the" make no difference.

    It is unclear, even then, when its words also stand in the short name of another country. "Guinea" is exactly one
    country's name and yet half of what somebody wrote about Equatorial Guinea. That asks once about "Sudan" and "Samoa"
    too, which is the safe side: a question costs a minute, a wrong code goes unnoticed. Only whole words count
    ("Niger" is not in "Nigeria"), and only short names ("China" is clear although Hong Kong's official name has it).
    """
    return _decide(_normalised(name)) if len(name) <= _MAX_LENGTH else Unclear(())


def every_country() -> list[Candidate]:
    """Every country, in the order of a list for people."""
    labels = _index().labels
    return [Candidate(code, labels[code]) for code in sorted(labels, key=lambda code: _normalised(labels[code]))]


@lru_cache(maxsize=4096)
def _decide(key: str) -> Decided | Unclear:
    if not key:
        return Unclear(())
    index = _index()
    if code := index.codes.get(key):
        return Decided(code)
    named = index.names.get(key, frozenset())
    others = _sharing(key) - named - _NEVER_MEANT_BY_HALF_THEIR_NAME
    if len(named) == 1 and not others and key not in _EVERYDAY_NAMES:
        return Decided(next(iter(named)))
    codes = list(dict.fromkeys(_likely(key)))[:MAX_CANDIDATES]
    return Unclear(tuple(Candidate(code, index.labels[code]) for code in codes))


def _likely(key: str) -> Iterator[str]:
    """Yield the codes of the countries that ``key`` may mean, the likeliest first, some of them twice."""
    index = _index()
    if code := _EVERYDAY_NAMES.get(key):
        yield code

    # Names with these whole words: the fewer other words, the likelier; those that begin with them first.
    yield from _few(
        (len(name.split()), not name.startswith(key), index.labels[code], code)
        for name, codes in index.names.items()
        if _has_words(name, key)
        for code in codes
    )
    if len(key) >= 4:  # fewer letters stand in half the world's names
        yield from _few(
            (len(name), False, index.labels[code], code)
            for name, codes in index.names.items()
            if key in name
            for code in codes
        )
    names = [*index.names, *_EVERYDAY_NAMES]
    for similar in difflib.get_close_matches(key, names, n=MAX_CANDIDATES, cutoff=_FUZZY_CUTOFF):
        if code := _EVERYDAY_NAMES.get(similar):
            yield code
        yield from sorted(index.names.get(similar, ()))


def _few(ranked: Iterable[tuple[int, bool, str, str]]) -> list[str]:
    """Return the codes in the order of their ranks, or none when they are too many: "Republic" hints at nobody."""
    codes = list(dict.fromkeys(code for *_, code in sorted(ranked)))
    return codes if len(codes) <= MAX_CANDIDATES else []


def _sharing(key: str) -> set[str]:
    """Return the codes of the countries whose short name has the words of ``key``."""
    return {code for name, codes in _index().short_names.items() if _has_words(name, key) for code in codes}


def _has_words(name: str, words: str) -> bool:
    return f" {words} " in f" {name} "


@dataclass(frozen=True)
class _Index:
    codes: dict[str, str]  # normalised alpha-2 or alpha-3 code -> alpha-2 code
    names: dict[str, frozenset[str]]  # each normalised name -> the alpha-2 codes of its bearers
    short_names: dict[str, frozenset[str]]  # those of them that people call the country by
    labels: dict[str, str]  # alpha-2 code -> name to show


@cache
def _index() -> _Index:
    codes: dict[str, str] = {}
    names: dict[str, set[str]] = {}
    short_names: dict[str, set[str]] = {}
    labels: dict[str, str] = {}
    country: Any
    for country in pycountry.countries:
        code = country.alpha_2
        codes[code.casefold()] = codes[country.alpha_3.casefold()] = code
        common = getattr(country, "common_name", None)
        labels[code] = common or country.name
        for name in _short_names(country.name, common):
            short_names.setdefault(_normalised(name), set()).add(code)
            names.setdefault(_normalised(name), set()).add(code)
        for name in _long_names(country.name, getattr(country, "official_name", None)):
            names.setdefault(_normalised(name), set()).add(code)
    return _Index(codes, _frozen(names), _frozen(short_names), labels)


def _short_names(name: str, common: str | None) -> Iterator[str]:
    """Yield what people call a country: "Korea" of "Korea, Republic of", "Falkland Islands" of "... (Malvinas)"."""
    yield name.partition(" (")[0] if "(" in name else name.partition(", ")[0] if _is_inverted(name) else name
    if common:
        yield common


def _long_names(name: str, official: str | None) -> Iterator[str]:
    """Yield the formal names; an inverted one also in the order of speech ("Republic of Korea")."""
    yield name
    if _is_inverted(name):
        head, _, qualifier = name.partition(", ")
        yield f"{qualifier} {head}"
    if official:
        yield official


def _is_inverted(name: str) -> bool:
    """Tell "Korea, Republic of" from lists such as "Bonaire, Sint Eustatius and Saba"."""
    return name.count(", ") == 1 and " and " not in name


def _frozen(names: dict[str, set[str]]) -> dict[str, frozenset[str]]:
    return {name: frozenset(codes) for name, codes in names.items()}


def _normalised(name: str) -> str:
    """Return ``name`` in lower-case words, without diacritics, punctuation and the word "the"."""
    letters = unicodedata.normalize("NFKD", name.replace("&", " and ")).casefold()
    plain = "".join(letter for letter in letters if not unicodedata.combining(letter))
    # Apostrophes and dots join, every other sign separates: "D.R.C." is one word, "Guinea-Bissau" is two.
    words = re.sub(r"[\W_]+", " ", re.sub(r"['’‘`.]", "", plain)).split()
    return " ".join(word for word in words if word != "the")
