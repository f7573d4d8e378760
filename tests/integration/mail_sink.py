"""A real SMTP server on loopback that keeps what it is sent."""

from __future__ import annotations

import email
import email.policy
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import EmailMessage
from typing import Any


class Sink(socketserver.ThreadingTCPServer):
    """Speaks as much SMTP as a client needs to hand over a message."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Conversation)
        self.messages: list[EmailMessage] = []
        self.refuses = False

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def subjects(self, to: str) -> list[str]:
        return [str(each["Subject"]) for each in self.messages if each["To"] == to]


class _Conversation(socketserver.StreamRequestHandler):
    server: Sink

    def handle(self) -> None:
        self._say("220 sink")
        while line := self.rfile.readline().strip().upper():
            if line.startswith(b"QUIT"):
                self._say("221 bye")
                return
            if line.startswith(b"RCPT") and self.server.refuses:
                self._say("451 not now")
            elif line.startswith(b"DATA"):
                self._say("354 go on")
                self._keep()
                self._say("250 kept")
            else:
                self._say("250 ok")

    def _keep(self) -> None:
        lines: list[bytes] = []
        while (line := self.rfile.readline()) not in (b".\r\n", b""):
            lines.append(line)
        parsed: Any = email.message_from_bytes(b"".join(lines), policy=email.policy.default)
        self.server.messages.append(parsed)

    def _say(self, text: str) -> None:
        self.wfile.write(text.encode() + b"\r\n")


@contextmanager
def mail_sink() -> Iterator[Sink]:
    with Sink() as sink:
        thread = threading.Thread(target=sink.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        yield sink
        sink.shutdown()
        thread.join()
