"""Layered DAGs of nodes that do nothing, for the benchmark: registered where SUPERVISION_TEST_LAYERS names sizes."""

import os
from typing import Any

from supervision.engines import Dag

WIDTH = 20


def layered(name: str, count: int, *, inline: bool = False) -> Dag:
    """``count`` nodes in layers of 20; each waits for three of the layer before."""
    dag = Dag(name)
    for at in range(count):
        layer, place = divmod(at, WIDTH)
        after = {f"n{(layer - 1) * WIDTH + (place + step) % WIDTH}" for step in range(3)} if layer else set()
        dag.node(f"n{at}", after=sorted(after), inline=inline)(nothing)
    return dag


def nothing(task: Any) -> None:
    """What a node does."""


for _size in os.environ.get("SUPERVISION_TEST_LAYERS", "").split():
    layered(f"layered.{_size}", int(_size))
