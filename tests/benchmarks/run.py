"""Benchmarks by name: ``python tests/benchmarks/run.py NAME``, ``--list`` for the names.

Prints a JSON line per figure: {"bench", "metric", "value", "unit", "ratio", "of"}. Each figure stands beside what it is
to be compared with (``of``), measured in turns in one run on the same server, in a database of its own that is dropped
afterwards. Quote ratios: machines differ, and speeds drift.
"""

import argparse
import importlib
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NAMES = (
    "admin",
    "bulk",
    "checkpoints",
    "dag",
    "logpage",
    "machines",
    "parked",
    "pipeline",
    "recovery",
    "replay",
    "steps",
    "tasks",
    "wakeup",
)


@dataclass(frozen=True)
class Figure:
    """One measured number; ``ratio`` to the figure that ``of`` names, where there is one."""

    bench: str
    metric: str
    value: float
    unit: str
    ratio: float | None = None
    of: str | None = None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("name", nargs="?", choices=NAMES)
    parser.add_argument("--list", action="store_true", help="print the names and leave")
    options = parser.parse_args()
    if options.list or options.name is None:
        print("\n".join(NAMES))
        return
    sys.path.insert(0, str(ROOT))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
    for figure in _in_a_fresh_database(options.name):
        print(json.dumps(asdict(figure)), flush=True)


def _in_a_fresh_database(name: str) -> Iterator[Figure]:
    import django

    django.setup()
    from django.db import connection
    from django.test.utils import setup_databases, teardown_databases

    made = setup_databases(verbosity=0, interactive=False, keepdb=False)
    try:
        yield from importlib.import_module(f"tests.benchmarks.{name}").measure()
    finally:
        connection.close()
        teardown_databases(made, verbosity=0, keepdb=False)


if __name__ == "__main__":
    main()
