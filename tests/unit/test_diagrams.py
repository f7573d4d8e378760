"""The picture has what the table has: read back from the SVG, from Mermaid, and from DOT."""

import re
import xml.etree.ElementTree as ET
from datetime import timedelta
from typing import Any

import pytest

from supervision import diagrams
from supervision.diagrams import Edge, Graph, Node
from supervision.engines.pipelines.definition import State, Table
from supervision.engines.pipelines.picture import graph_of

SVG = "{http://www.w3.org/2000/svg}"


def noop(run: Any) -> None: ...


RETRAINING = Table("retraining", "INITIAL", {"DONE": "completed"}, {
    "INITIAL": State(noop, "CHECK_LAST_TRAIN", "DONE", True),
    "CHECK_LAST_TRAIN": State(noop, "DOWNLOAD_SAVE", "SUBMIT_JOB", True),
    "SUBMIT_JOB": State(noop, "POLL_JOB", "JOB_FAILED", True, max_visits=3),
    "POLL_JOB": State(noop, "DOWNLOAD_SAVE", "POLL_JOB", False, max_visits=100, poll_every=timedelta(minutes=3),
                      branches={"job lost": "JOB_FAILED"}),
    "JOB_FAILED": State(noop, "SUBMIT_JOB", "DONE", True, max_visits=3, retry_after=timedelta(minutes=10)),
    "DOWNLOAD_SAVE": State(noop, "DONE", "DONE", True),
})  # fmt: skip
EDGES = {
    ("INITIAL", "CHECK_LAST_TRAIN", ""),
    ("INITIAL", "DONE", "failure"),
    ("CHECK_LAST_TRAIN", "DOWNLOAD_SAVE", ""),
    ("CHECK_LAST_TRAIN", "SUBMIT_JOB", "failure"),
    ("SUBMIT_JOB", "POLL_JOB", ""),
    ("SUBMIT_JOB", "JOB_FAILED", "failure"),
    ("POLL_JOB", "DOWNLOAD_SAVE", ""),
    ("POLL_JOB", "POLL_JOB", "failure: yields"),
    ("POLL_JOB", "JOB_FAILED", "job lost"),
    ("JOB_FAILED", "SUBMIT_JOB", ""),
    ("JOB_FAILED", "DONE", "failure"),
    ("DOWNLOAD_SAVE", "DONE", "always"),
}
HOSTILE = ['a "quoted" one', "<b>bold</b>", "back\\nslash", "<script>alert(1)</script>", "a:b|c{d}", "#1; `x`", "—ß漢"]


def read(svg: bytes) -> tuple[dict[str, list[str]], set[tuple[str, str, str]]]:
    """Node -> its lines, and (source, target, label) of every edge, as they are drawn."""
    groups = list(ET.fromstring(svg).iter(f"{SVG}g"))
    lines = {
        _title(group): [text.text or "" for text in group.iter(f"{SVG}text")]
        for group in groups if group.get("class") == "node"
    }  # fmt: skip
    nodes = {title: texts for title, texts in lines.items() if texts}
    edges = set()
    for group in (group for group in groups if group.get("class") == "edge"):
        source, _arrow, target = _title(group).partition("->")
        if source in nodes:
            label = " ".join(text.text or "" for text in group.iter(f"{SVG}text")).strip()
            edges.add((nodes[source][0], nodes[target][0], label))
    return {texts[0]: texts[1:] for texts in nodes.values()}, edges


def _title(group: ET.Element) -> str:
    title = group.find(f"{SVG}title")
    assert title is not None
    return title.text or ""


def test_the_svg_has_the_nodes_and_edges_of_the_table() -> None:
    nodes, edges = read(diagrams.render(graph_of(RETRAINING), "svg"))
    assert set(nodes) == {*RETRAINING.states, *RETRAINING.terminal}
    assert edges == EDGES
    assert nodes["POLL_JOB"] == ["looks every 3 min", "at most 100 visits"]
    assert nodes["JOB_FAILED"] == ["at most 3 visits", "again after 10 min"]
    assert nodes["DONE"] == ["completed"]


def test_counts_the_current_state_and_strangers_are_drawn() -> None:
    counts = {"POLL_JOB": 7, "max retries reached:SUBMIT_JOB": 2, "LOST": 1}
    graph = graph_of(RETRAINING, counts=counts, current="POLL_JOB")
    nodes, edges = read(diagrams.render(graph, "svg"))
    assert nodes["POLL_JOB"][-1] == "7 here"
    assert nodes["LOST"] == ["1 here"]
    assert edges - EDGES == {("SUBMIT_JOB", "max retries reached:SUBMIT_JOB", "no visits left")}
    assert [node.name for node in graph.nodes if node.is_current] == ["POLL_JOB"]
    lit = re.search(r'<title>n3</title>\s*<path fill="#ffe08a"[^>]*stroke-width="3"', _text(graph))
    assert lit, "the current state is lit"
    assert [node.name for node in graph.nodes if node.waits] == ["POLL_JOB"]


def _text(graph: Graph) -> str:
    return diagrams.render(graph, "svg").decode()


def test_names_are_drawn_as_they_are_and_are_never_markup() -> None:
    graph = Graph(
        "hostile\n*/ title",
        tuple(Node(name, is_initial=name == HOSTILE[0]) for name in HOSTILE),
        tuple(Edge(HOSTILE[0], name, name, "branch") for name in HOSTILE),
    )
    nodes, edges = read(diagrams.render(graph, "svg"))
    assert set(nodes) == set(HOSTILE)
    assert edges == {(HOSTILE[0], name, name) for name in HOSTILE}
    assert "<script" not in _text(graph)
    text = diagrams.mermaid(graph)
    assert "<script" not in text
    assert '""' not in text


def test_a_policy_without_inline_style_lets_the_svg_be() -> None:
    assert "style=" not in _text(graph_of(RETRAINING, current="DONE"))
    assert "<style" not in _text(graph_of(RETRAINING))


def test_mermaid_needs_no_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagrams, "graphviz", None)
    text = diagrams.render(graph_of(RETRAINING), "mermaid").decode()
    assert text.startswith("flowchart TD\n")
    found = set()
    names = dict(re.findall(r'^    (n\d+)\(?\[\(?"?"?([A-Z_]+)', text, re.MULTILINE))
    for source, label, target in re.findall(r'^    (n\d+) -\.?->(?:\|"(.*?)"\|)? (n\d+)$', text, re.MULTILINE):
        found.add((names[source], names[target], label))
    assert found == EDGES
    assert not diagrams.can_render()
    for format in ("svg", "png", "dot"):
        with pytest.raises(diagrams.NoRenderer, match="diagrams"):
            diagrams.render(graph_of(RETRAINING), format)


def test_without_a_program_dot_text_is_still_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagrams, "_renderer", lambda: None)
    diagrams._rendered.cache_clear()
    assert diagrams.render(graph_of(RETRAINING), "dot").startswith(b"// retraining\ndigraph {")
    with pytest.raises(diagrams.NoRenderer):
        diagrams.render(graph_of(RETRAINING), "svg")


def test_a_png_is_one() -> None:
    assert diagrams.render(graph_of(RETRAINING), "png").startswith(b"\x89PNG")


def test_a_renderer_that_gives_up_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagrams, "_renderer", lambda: "/nonexistent/dot")
    diagrams._rendered.cache_clear()
    with pytest.raises(diagrams.RenderingFailed, match="could not be rendered"):
        diagrams.render(graph_of(RETRAINING), "svg")
