"""The tests notice: each guard taken out of a copy of the code makes the test of its name fail."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.chaos.sabotages import SABOTAGES
from tests.crash.servers import Server
from tests.processes import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code and its tests, to be cut up."""
    where = tmp_path_factory.mktemp("sabotaged")
    for name in ("supervision", "project", "tests", "templates"):
        shutil.copytree(ROOT / name, where / name, ignore=shutil.ignore_patterns("__pycache__", "browser"))
    for name in ("pyproject.toml", "manage.py"):
        shutil.copy(ROOT / name, where / name)
    return where


def _run(copy: Path, server: Server, *tests: str) -> tuple[int, list[ElementTree.Element], str]:
    """(exit status, the outcome of each test, output) of those tests over the copy."""
    report = copy / "report.xml"
    report.unlink(missing_ok=True)
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "--reuse-db",
            "-p",
            "no:cacheprovider",
            f"--junit-xml={report}",
            *tests,
        ],
        cwd=copy,
        env={**os.environ, "DATABASE_URL": server.url, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    cases = list(ElementTree.parse(report).iter("testcase")) if report.exists() else []
    return ran.returncode, cases, ran.stdout + ran.stderr


@pytest.mark.parametrize("name", SABOTAGES)
def test_sabotage_is_caught(name: str, copy: Path, server: Server) -> None:
    sabotage = SABOTAGES[name]
    file = copy / "supervision" / sabotage.file
    whole = file.read_text()
    assert whole.count(sabotage.old) == 1, f"{sabotage.file} doesn't have it exactly once: {sabotage.old}"
    file.write_text(whole.replace(sabotage.old, sabotage.new))
    try:
        status, cases, output = _run(copy, server, sabotage.caught_by)
    finally:
        file.write_text(whole)
    assert status == 1, output
    assert any(case.find("failure") is not None for case in cases), f"no test failed, something else did:\n{output}"


def test_code_that_nobody_sabotaged_passes(copy: Path, server: Server) -> None:
    """Else the failures above would mean nothing."""
    tests = sorted({sabotage.caught_by for sabotage in SABOTAGES.values()})
    status, cases, output = _run(copy, server, *tests)
    assert status == 0, output
    assert len(cases) >= len(tests)
