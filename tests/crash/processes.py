"""Child processes of the crash tests: fresh interpreters with the test's database."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from django.conf import settings

from tests.processes import ROOT, database_url

DEADLINE = 30.0


class Child:
    """``python -m tests.crash.child VERB ...`` in the background, from any working directory."""

    def __init__(
        self,
        *arguments: str,
        crash_at: str = "",
        supervision: dict[str, object] | None = None,
        url: str = "",
        cwd: Path | None = None,
    ) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "tests.crash.child", *arguments],
            cwd=cwd or ROOT,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "DATABASE_URL": url or database_url(),
                "DJANGO_SECRET_KEY": settings.SECRET_KEY,
                "DJANGO_SETTINGS_MODULE": "tests.cluster_settings",
                "SUPERVISION_TEST": json.dumps(supervision or {}),
                "SUPERVISION_CRASH_AT": crash_at,
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid

    def wait(self) -> int:
        """Its exit status."""
        self._out, self._errors = self._process.communicate(timeout=DEADLINE)
        return self._process.returncode

    def said(self) -> Any:
        """What came of it, once it has ended well."""
        status = self.wait()
        assert status == 0, f"it ended with {status}:\n{self._errors}"
        return json.loads(self._out.splitlines()[-1])

    def hear(self) -> str:
        """The next line that it prints."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait(DEADLINE)
            assert self._process.stderr is not None
            raise AssertionError(f"it ended with {self._process.returncode}:\n{self._process.stderr.read()}")
        return line.strip()

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    @property
    def errors(self) -> str:
        return self._errors

    def clean_up(self) -> None:
        """Kills it if it runs, and closes its pipes."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
