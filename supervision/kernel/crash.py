"""Named crash points before and after each commit of the kernel.

Armed only by the environment variable ``SUPERVISION_CRASH_AT=NAME[@N]``, which tests set in a child process: the
N-th time (default 1) that the point of that name is reached, the process ends by ``os._exit(86)``.
"""

import os

EXIT_STATUS = 86

_name, _, _count = os.environ.get("SUPERVISION_CRASH_AT", "").partition("@")
_left = int(_count or 1)

NAMES: tuple[str, ...] = tuple(
    f"{verb}:{moment}"
    for verb in ("create", "take", "checkpoint", "ask", "answer", "complete", "park", "fail", "end", "reap",
                 "pause", "resume", "cancel", "expire", "signal", "consume", "prune", "fork", "notice",
                 "schedule", "archive")
    for moment in ("before_commit", "after_commit")
)  # fmt: skip
"""Every point that exists, so that tests can visit each."""


def point(name: str) -> None:
    """Ends the process here if this point is armed; otherwise does nothing, in a few nanoseconds."""
    global _left
    if name == _name:
        _left -= 1
        if _left == 0:
            os._exit(EXIT_STATUS)
