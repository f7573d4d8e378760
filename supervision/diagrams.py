"""A graph of states or nodes as DOT, Mermaid, SVG or PNG. Pure: knows nothing of pipelines, and asks no database.

DOT is built by the package ``graphviz`` and rendered by an installed ``dot``, or by the package ``graphviz-pure``: both
come with the extra ``django-supervision[diagrams]``. Mermaid text needs neither.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from django.utils.translation import gettext as _

from supervision.errors import SupervisionError

try:
    import graphviz
except ImportError:  # the extra isn't installed
    graphviz = None

NodeKind = Literal["state", "completed", "failed", "lost"]
EdgeKind = Literal["success", "failure", "branch"]
FORMATS = ("svg", "png", "dot", "mermaid")
_SECONDS = 30


@dataclass(frozen=True)
class Node:
    """A state or an end. ``notes`` stand below its name; ``waits`` marks where it lets go of the worker."""

    name: str
    kind: NodeKind = "state"
    notes: tuple[str, ...] = ()
    waits: bool = False
    is_initial: bool = False
    is_current: bool = False


@dataclass(frozen=True)
class Edge:
    """What leads from one node to another; ``label`` says when."""

    source: str
    target: str
    label: str = ""
    kind: EdgeKind = "success"


@dataclass(frozen=True)
class Graph:
    """What is drawn, in the order given."""

    title: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


class NoRenderer(SupervisionError):
    """Neither ``dot`` nor ``graphviz-pure`` is there, or the package ``graphviz`` isn't."""

    def __init__(self) -> None:
        super().__init__(
            _("This format needs the extra “diagrams”: pip install 'django-supervision[diagrams]'. "
              "The format mermaid needs nothing.")
        )  # fmt: skip


class RenderingFailed(SupervisionError):
    """The renderer gave up."""

    def __init__(self, why: str) -> None:
        super().__init__(_("The diagram could not be rendered: %(why)s") % {"why": why})


def can_render() -> bool:
    """Whether ``svg`` and ``png`` are to be had here."""
    return graphviz is not None and _renderer() is not None


def dot(graph: Graph) -> str:
    """The graph in Graphviz's language. Raises NoRenderer without the package ``graphviz``."""
    if graphviz is None:
        raise NoRenderer
    names = {node.name: f"n{at}" for at, node in enumerate(graph.nodes)}
    drawn = graphviz.Digraph(
        comment=" ".join(graph.title.split()),
        graph_attr={"rankdir": "TB", "bgcolor": "white", "pad": "0.2", "nodesep": "0.35", "ranksep": "0.45"},
        node_attr={"shape": "box", "style": "rounded,filled", "fillcolor": "white", "color": "#3b4252",
                   "fontname": _FONT, "fontsize": "12", "margin": "0.18,0.09"},
        edge_attr={"fontname": _FONT, "fontsize": "10", "color": "#3b4252", "arrowsize": "0.7"},
    )  # fmt: skip
    for node in graph.nodes:
        drawn.node(names[node.name], _lines(node.name, *node.notes), **_node_style(node))
        if node.is_initial:
            drawn.node("start", "", shape="point", width="0.12")
            drawn.edge("start", names[node.name])
    for edge in graph.edges:
        drawn.edge(
            names[edge.source],
            names[edge.target],
            f" {_lines(edge.label)}" if edge.label else None,
            **_edge_style(edge),
        )
    source: str = drawn.source
    return source


def mermaid(graph: Graph) -> str:
    """The graph as a Mermaid flowchart, which GitHub, GitLab and many editors draw."""
    names = {node.name: f"n{at}" for at, node in enumerate(graph.nodes)}
    lines = ["flowchart TD"]
    for node in graph.nodes:
        text = "<br/>".join(_for_mermaid(line) for line in (node.name, *node.notes))
        opening, closing = ("([", "])") if node.kind in ("completed", "failed") else ("[", "]")
        classes = node.kind + (" waits" if node.waits else "") + (" current" if node.is_current else "")
        lines.append(f'    {names[node.name]}{opening}"{text}"{closing}')
        lines += [f"    class {names[node.name]} {each}" for each in classes.split() if each != "state"]
        if node.is_initial:
            lines += [f"    start(( )) --> {names[node.name]}"]
    for edge in graph.edges:
        arrow = "-->" if edge.kind == "success" else "-.->"
        label = f'|"{_for_mermaid(edge.label)}"|' if edge.label else ""
        lines.append(f"    {names[edge.source]} {arrow}{label} {names[edge.target]}")
    lines += [f"    classDef {name} {style}" for name, style in _MERMAID_STYLES.items()]
    return "\n".join(lines) + "\n"


def render(graph: Graph, format: str) -> bytes:
    """The graph in one of FORMATS. Raises NoRenderer, RenderingFailed, ValueError for another format."""
    if format == "mermaid":
        return mermaid(graph).encode()
    source = dot(graph)
    if format == "dot":
        return source.encode()
    if format not in FORMATS:
        raise ValueError(f"no format {format!r}; formats: {', '.join(FORMATS)}")
    return _rendered(source, format)


@lru_cache(maxsize=64)
def _rendered(source: str, format: str) -> bytes:
    """Kept, since the same picture is asked for again and again."""
    program = _renderer()
    if program is None:
        raise NoRenderer
    try:
        done = subprocess.run(  # noqa: S603 - the program is Graphviz, its input our own text
            [program, f"-T{format}"], input=source.encode(), capture_output=True, check=True, timeout=_SECONDS
        )
    except subprocess.CalledProcessError as error:
        raise RenderingFailed(error.stderr.decode(errors="replace").strip()) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RenderingFailed(str(error)) from None
    return done.stdout


@lru_cache(maxsize=1)
def _renderer() -> str | None:
    """``dot``, or ``graphviz-pure``, which pip puts beside this Python."""
    beside = (Path(sysconfig.get_path("scripts")), Path(sys.executable).parent)
    found = [
        shutil.which("dot"),
        shutil.which("graphviz-pure"),
        *(shutil.which("graphviz-pure", path=p) for p in beside),
    ]
    return next(filter(None, found), None)


_FONT = "Helvetica,Arial,sans-serif"
_FILLS: dict[NodeKind, tuple[str, str]] = {
    "state": ("#ffffff", "#3b4252"),
    "completed": ("#e3f3e3", "#2f6f37"),
    "failed": ("#fbe6e3", "#a3271b"),
    "lost": ("#fdf3d7", "#8a6100"),
}
_MERMAID_STYLES = {
    "completed": "fill:#e3f3e3,stroke:#2f6f37,stroke-width:3px",
    "failed": "fill:#fbe6e3,stroke:#a3271b,stroke-width:3px",
    "lost": "fill:#fdf3d7,stroke:#8a6100",
    "waits": "stroke-dasharray:6 3",
    "current": "fill:#ffe08a,stroke:#8a6100,stroke-width:4px",
}


def _node_style(node: Node) -> dict[str, str]:
    fill, border = _FILLS[node.kind]
    style = {"fillcolor": fill, "color": border}
    if node.waits:
        style["style"] = "rounded,filled,dashed"
    if node.kind in ("completed", "failed"):
        style["peripheries"] = "2"
    if node.is_current:
        style |= {"fillcolor": "#ffe08a", "penwidth": "3"}
    return style


def _edge_style(edge: Edge) -> dict[str, str]:
    match edge.kind:
        case "failure":
            return {"color": "#a3271b", "fontcolor": "#a3271b", "style": "dashed"}
        case "branch":
            return {"color": "#1f5fa8", "fontcolor": "#1f5fa8", "style": "dashed"}
    return {}


def _lines(*lines: str) -> Any:
    """Lines of a label, each as it is: no escape of DOT, no markup."""
    return graphviz.nohtml(r"\n".join(graphviz.escape(line) for line in lines if line))


def _for_mermaid(text: str) -> str:
    for character, entity in (("#", "#35;"), ('"', "#quot;"), ("<", "#lt;"), (">", "#gt;"), ("`", "#96;")):
        text = text.replace(character, entity)
    return text
