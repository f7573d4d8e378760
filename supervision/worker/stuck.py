"""Tasks that wait for what has already happened, or for nothing at all. There should never be one: each is a fault."""

from __future__ import annotations

from dataclasses import dataclass

from django.utils.translation import gettext as _

from supervision.kernel import sql
from supervision.kernel.states import Reason


@dataclass(frozen=True)
class Stuck:
    """So many tasks of one kind, with a sentence and up to five ids."""

    kind: str
    count: int
    examples: list[str]

    @property
    def message(self) -> str:
        words = {
            "answer": _("wait for an answer, and no question of theirs is open"),
            "signal": _("wait for a signal that has come"),
            "children": _("wait for children that have ended"),
            "wake": _("wait for nobody, and are never due"),
        }
        return _("%(count)d tasks %(what)s: %(examples)s. Resume or retry them, and report this.") % {
            "count": self.count, "what": words[self.kind], "examples": ", ".join(self.examples),
        }  # fmt: skip


# One snapshot sees the wait and what it waits for, and both change in one commit: no grace is needed. A wait for a
# signal may have a timeout, which is its wake_at.
_STUCK = """
WITH waiting AS (
    SELECT *, split_part(watchdog_stop_reason, ':', 1) AS word
      FROM supervision_task
     WHERE watchdog_stop_reason <> '' AND split_part(watchdog_stop_reason, ':', 1) = ANY(%(words)s)
       AND current_state = 'parked' AND (wake_at IS NULL OR wake_at > supervision_now_v1())
), found AS (
    SELECT id, CASE
        WHEN word IN ('awaiting_user_answer', 'awaiting_user_answers') THEN CASE
            WHEN wake_at IS NULL AND NOT EXISTS (
                SELECT 1 FROM supervision_question AS question
                 WHERE question.task_id = waiting.id AND question.status = 'pending') THEN 'answer' END
        WHEN word = 'awaiting_signal' THEN CASE
            WHEN EXISTS (
                SELECT 1 FROM supervision_signal AS signal
                 WHERE signal.task_id = waiting.id AND signal.consumed_in IS NULL
                   AND waiting.watchdog_stop_reason = 'awaiting_signal:' || signal.name) THEN 'signal' END
        WHEN word = 'awaiting_children' THEN CASE
            WHEN wake_at IS NULL AND children_awaited > (
                SELECT count(*) FROM supervision_task AS child
                 WHERE child.parent_id = waiting.id AND child.is_awaited
                   AND child.current_state IN ('pending', 'running', 'parked')) THEN 'children' END
        ELSE CASE WHEN wake_at IS NULL THEN 'wake' END
    END AS kind
      FROM waiting
    UNION ALL
    SELECT id, 'wake' FROM supervision_task WHERE current_state = 'pending' AND wake_at IS NULL
)
SELECT kind, count(*)::int, (array_agg(id::text ORDER BY id))[1:5] FROM found WHERE kind IS NOT NULL
 GROUP BY kind ORDER BY kind
"""
_WORDS = (
    Reason.AWAITING_USER_ANSWER, Reason.AWAITING_USER_ANSWERS, Reason.AWAITING_SIGNAL, Reason.AWAITING_CHILDREN,
    Reason.USER_PAUSED, Reason.SLEEPING, Reason.RETRYING, Reason.YIELDED, Reason.WORKER_LOST,
    Reason.WORKER_STOPPING, Reason.CONNECTION_LOST,
)  # fmt: skip
"""Every reason but those that wait for an operator, and for a slot: the next tick gives free ones away."""


def find() -> list[Stuck]:
    """Each kind that there is, in one query. Reads the parked tasks, by index."""
    return [Stuck(*row) for row in sql.run(_STUCK, {"words": list(_WORDS)})]
