"""The bar of the demo: where it is drawn, and that lines stand above it."""

from typing import Any

import pytest

from project.demo_screen import Screen


class Paper:
    """An output that remembers."""

    def __init__(self, *, is_terminal: bool) -> None:
        self.text = ""
        self._is_terminal = is_terminal

    def write(self, msg: str = "", style_func: Any = None, ending: str | None = None) -> None:
        self.text += msg + ("\n" if ending is None else ending)

    def flush(self) -> None: ...

    def isatty(self) -> bool:
        return self._is_terminal


def test_nobody_watching_gets_lines_only() -> None:
    paper = Paper(is_terminal=False)
    screen = Screen(paper)
    screen.show(1, 2, "Reading")
    screen.say("parked")
    assert paper.text == "parked\n"


def test_a_line_is_written_where_the_bar_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    paper = Paper(is_terminal=True)
    screen = Screen(paper)
    screen.show(1, 2, "Reading")
    screen.say("parked")
    assert paper.text == "\r\x1b[K[############............]  50%  Reading\r\x1b[Kparked\n"


def test_the_bar_is_drawn_when_it_moves_and_fits_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    paper = Paper(is_terminal=True)
    screen = Screen(paper)
    for done in (0, 0, 3, 3):
        screen.show(done, 2, "Reading")
    assert paper.text == "\r\x1b[K[..................\r\x1b[K[##################"
    screen.clear()
    screen.clear()
    assert paper.text.endswith("##\r\x1b[K")
