"""A training service to practise on: a small process with a ledger of its own, as unreliable as the real ones.

    python -m project.training_service --ledger ledger.jsonl --url-file url --lose-every 5 --break-every 3

It accepts a job under a key (a key that it knows gets the job that it has), takes a while, sometimes loses a job, and
sometimes a download breaks off. Every event is a line of the ledger, which it reads again when it is restarted; so what
really happened can be told without asking whoever used it. It ends when its standard input does.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class Ledger:
    """What was accepted, lost and fetched: in memory, and line by line in the file."""

    def __init__(self, path: Path, *, seconds: float, lose_every: int, break_every: int) -> None:
        self._seconds, self._lose_every, self._break_every = seconds, lose_every, break_every
        self._lock = threading.Lock()
        self._jobs: dict[str, dict[str, Any]] = {}
        self._by_key: dict[str, str] = {}
        if path.exists():
            for line in path.read_text().splitlines():
                self._note(json.loads(line))
        self._file = path.open("a", buffering=1)

    def accept(self, key: str, customer: str) -> str:
        """The job of that key, new or known."""
        with self._lock:
            known = self._by_key.get(key)
            if known is not None:
                self._write("repeated", known, key=key, customer=customer)
                return known
            job = f"job-{len(self._jobs) + 1}"
            self._write("accepted", job, key=key, customer=customer)
            return job

    def status(self, job: str) -> str | None:
        """``running``, ``done``, or None: never heard of it."""
        with self._lock:
            row = self._jobs.get(job)
            if row is None or row["lost"]:
                return None
            number = int(job.removeprefix("job-"))
            is_over = time.time() - row["at"] >= self._seconds
            if is_over and self._lose_every and number % self._lose_every == 0:
                self._write("lost", job, customer=row["customer"])
                return None
            return "done" if is_over else "running"

    def fetch(self, job: str) -> tuple[bytes, bool]:
        """The model of the job, and whether this download breaks off: the first of some jobs does."""
        with self._lock:
            row = self._jobs[job]
            breaks = bool(self._break_every) and int(job.removeprefix("job-")) % self._break_every == 0
            is_broken = breaks and not row["fetched"]
            self._write("broken" if is_broken else "downloaded", job, customer=row["customer"])
        return json.dumps({"job": job, "customer": row["customer"], "weights": [0.5] * 2000}).encode(), is_broken

    def _write(self, event: str, job: str, **facts: str) -> None:
        line = {"event": event, "job": job, "at": time.time(), **facts}
        self._file.write(json.dumps(line) + "\n")
        self._note(line)

    def _note(self, line: dict[str, Any]) -> None:
        match line["event"]:
            case "accepted":
                self._jobs[line["job"]] = {**line, "lost": False, "fetched": False}
                self._by_key[line["key"]] = line["job"]
            case "lost":
                self._jobs[line["job"]]["lost"] = True
            case "broken" | "downloaded":
                self._jobs[line["job"]]["fetched"] = True


def handler_of(ledger: Ledger, answer_after: float) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            job = ledger.accept(asked["key"], asked["customer"])
            time.sleep(answer_after)  # accepted, and whoever asked doesn't know yet
            self._answer({"job": job})

        def do_GET(self) -> None:
            _root, _jobs, job, *rest = [*self.path.split("/"), ""]
            status = ledger.status(job)
            if status is None:
                self.send_error(404)
            elif rest[0] == "model":
                model, is_broken = ledger.fetch(job)
                self._send(model, model[: len(model) // 3] if is_broken else model)
            else:
                self._answer({"status": status})

        def _answer(self, value: object) -> None:
            text = json.dumps(value).encode()
            self._send(text, text)

        def _send(self, promised: bytes, sent: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(promised)))
            self.end_headers()
            self.wfile.write(sent)
            self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            """The ledger says it all."""

    return Handler


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ledger", type=Path, required=True)
    parser.add_argument("--url-file", type=Path, required=True, help="its address is written there once it listens")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=20, help="how long a training takes")
    parser.add_argument("--answer-after", type=float, default=0, help="seconds between accepting and answering")
    parser.add_argument("--lose-every", type=int, default=0, metavar="N", help="every N-th job is lost")
    parser.add_argument("--break-every", type=int, default=0, metavar="N", help="of every N-th, a download breaks")
    options = parser.parse_args()
    ledger = Ledger(options.ledger, seconds=options.seconds, lose_every=options.lose_every,
                    break_every=options.break_every)  # fmt: skip
    server = ThreadingHTTPServer(("127.0.0.1", options.port), handler_of(ledger, options.answer_after))
    server.daemon_threads = True
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is for whoever started it
    threading.Thread(target=server.serve_forever, daemon=True).start()
    half = options.url_file.with_suffix(".new")
    half.write_text(f"http://127.0.0.1:{server.server_port}")
    half.rename(options.url_file)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
