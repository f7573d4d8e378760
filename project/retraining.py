"""Retraining one model per customer on a remote service: a pipeline that waits for hours without holding a worker.

The service is ``project.training_service``, where ``TRAINING_SERVICE_URL`` says; ``manage.py demo`` starts one.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.utils import timezone
from django.utils.translation import gettext as _

from supervision.engines import Pipeline, Run, State
from supervision.kernel.models import Task
from supervision.worker.rolling import Rolling, rolling

URL = "TRAINING_SERVICE_URL"
POLL = timedelta(seconds=float(os.environ.get("TRAINING_POLL_SECONDS", "5")))
_TIMEOUT = 10.0
_PATIENCE = 10.0


def customers() -> list[str]:
    """A dozen."""
    return [f"customer {number:02d}" for number in range(1, 13)]


# --- the states' work


def check_readiness(run: Run) -> Any:
    """What there is to learn from; fresh data come every day."""
    if URL not in os.environ:
        return False, _("There is no training service: %(name)s is not set.") % {"name": URL}, {}
    return True, None, {"data": timezone.localdate().isoformat()}


def resume_or_fresh(run: Run) -> Any:
    """If the last run's job has finished, wasn't saved, and nothing is new since, a download is enough."""
    last = run.previous.params if run.previous else {}
    if "job" not in last or "model" in last or last.get("data") != run.params["data"]:
        return False
    if _status(last["job"]) != "done":
        return False
    return True, None, {"job": last["job"], "resumed": True}


def submit_train_job(run: Run) -> Any:
    """One job for this visit, however often a worker dies: the service knows the key again."""
    job = run.step("submit", _post, {"key": run.idempotency_key, "customer": run.subject})["job"]
    return True, None, {"job": job}


def check_job_status(run: Run) -> Any:
    status = _status(run.params["job"])
    return "job lost" if status is None else status == "done"


def noop(run: Run) -> None:
    """Counts the attempt, and leads on."""


def download_and_save(run: Run) -> Any:
    """A download that breaks off raises, which is this state's failure; the next run takes it up again."""
    url = f"{_url()}/jobs/{run.params['job']}/model"
    with urllib.request.urlopen(url, timeout=_TIMEOUT) as answer:  # noqa: S310
        model = answer.read()
        promised = int(answer.headers["Content-Length"])
    if len(model) != promised:
        raise OSError(f"the download broke off after {len(model)} of {promised} bytes")
    return True, None, {"model": hashlib.sha256(model).hexdigest()}


retraining = Pipeline("retraining", initial="INITIAL", terminal={"DONE": "completed"}, label=_("Retraining"), states={
    "INITIAL":          State(check_readiness,   "CHECK_LAST_TRAIN", "DONE",       True),
    "CHECK_LAST_TRAIN": State(resume_or_fresh,   "DOWNLOAD_SAVE",    "SUBMIT_JOB", True),
    "SUBMIT_JOB":       State(submit_train_job,  "POLL_JOB",         "JOB_FAILED", True,  max_visits=3),
    "POLL_JOB":         State(check_job_status,  "DOWNLOAD_SAVE",    "POLL_JOB",   False, max_visits=100,
                              poll_every=POLL, branches={"job lost": "JOB_FAILED"}),
    "JOB_FAILED":       State(noop,              "SUBMIT_JOB",       "DONE",       True,  max_visits=3),
    "DOWNLOAD_SAVE":    State(download_and_save, "DONE",             "DONE",       True),
})  # fmt: skip

rolling(Rolling(retraining, customers, every=timedelta(minutes=10), spread_over=timedelta(minutes=5),
                look_every=timedelta(minutes=1)))  # fmt: skip


# --- the service


def _url() -> str:
    return os.environ[URL]


def _post(job: dict[str, str]) -> Any:
    request = urllib.request.Request(  # noqa: S310 - our own address
        f"{_url()}/jobs", json.dumps(job).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:  # noqa: S310
        return json.load(answer)


def _status(job: str) -> str | None:
    """``running``, ``done``, or None: the service doesn't know the job (any more)."""
    try:
        with urllib.request.urlopen(f"{_url()}/jobs/{job}", timeout=_TIMEOUT) as answer:  # noqa: S310
            status: str = json.load(answer)["status"]
            return status
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise


# --- for the demo


@contextmanager
def service(directory: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """A training service in a process of its own, with its ledger in ``directory``; workers that are started inside
    the block find it. It ends with the block, or with this process, however that ends."""
    directory.mkdir(parents=True, exist_ok=True)
    url_file = directory / "url"
    url_file.unlink(missing_ok=True)
    command = [sys.executable, "-m", "project.training_service", "--ledger", str(directory / "ledger.jsonl"),
               "--url-file", str(url_file), *options]  # fmt: skip
    before = os.environ.get(URL)
    with subprocess.Popen(command, cwd=settings.BASE_DIR, stdin=subprocess.PIPE) as process:  # noqa: S603 - ours
        try:
            deadline = time.monotonic() + _PATIENCE
            while not url_file.exists():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(_("The training service did not start."))
                time.sleep(0.02)
            os.environ[URL] = url_file.read_text()
            yield process
        finally:
            os.environ.pop(URL, None)
            if before is not None:
                os.environ[URL] = before
            process.kill()


def demo_service() -> Any:
    """For ``manage.py demo``, around the workers: ``with demo_service(): ...``. Trainings take half a minute; every
    fifth job is lost, and of every third the first download breaks off."""
    directory = settings.DATA_DIR / "training"
    return service(directory, "--seconds", "30", "--answer-after", "0.2", "--lose-every", "5", "--break-every", "3")


def start_demo() -> list[Task]:
    """For ``manage.py demo``, once the database is there: a run for each customer, spread over a minute."""
    return retraining.start_all(customers(), spread_over=timedelta(minutes=1), by="demo")
