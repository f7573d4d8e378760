"""The statements that move a pointer and record a visit: branches of a checkpoint, or of a park."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from supervision.engines.pipelines.definition import Move, Table
from supervision.engines.pipelines.outcome import Outcome
from supervision.kernel import sql, storable
from supervision.kernel.branches import Branch

# The subject's row under the run that drives it: position, counts, what was handed on.
_STANDING = """
SELECT pointer.id, pointer.run_id, pointer.state, pointer.counts::text, pointer.forgiven::text, pointer.params::text,
       pointer.previous::text, pointer.entered_in, pointer.run_from, task.concurrency_key, task.subject
  FROM supervision_task AS task
  LEFT JOIN supervision_pointer AS pointer ON pointer.pipeline = task.body AND pointer.subject = task.subject
 WHERE task.id = %(task_id)s::uuid
"""

# A new run of the subject: the row is made, or turned to it; the run before becomes the previous one.
_BEGIN = """
INSERT INTO supervision_pointer AS pointer
       (pipeline, subject, state, generation, run_id, counts, forgiven, params, previous, since, entered_at, entered_in,
        visit_count, run_from)
SELECT %(b_pipeline)s::text, %(b_subject)s::text, %(b_state)s::text, 1, task.id, %(b_counts)s::jsonb, '{}',
       %(b_params)s::jsonb, NULL, task.now, task.now, task.log_length, 0, 0
  FROM task
ON CONFLICT (pipeline, subject) DO UPDATE
   SET state = excluded.state, generation = pointer.generation + 1, run_id = excluded.run_id,
       counts = excluded.counts, forgiven = excluded.forgiven, params = excluded.params, since = excluded.since,
       entered_at = excluded.entered_at, entered_in = excluded.entered_in, run_from = pointer.visit_count,
       previous = jsonb_build_object('run', pointer.run_id, 'state', pointer.state, 'params', pointer.params,
                                     'visits', jsonb_build_array(pointer.run_from, pointer.visit_count))
                  || COALESCE((SELECT jsonb_build_object('end', last.current_state, 'reason', last.watchdog_stop_reason)
                                 FROM supervision_task AS last WHERE last.id = pointer.run_id), '{}')
"""

_MOVE = """
UPDATE supervision_pointer AS pointer
   SET state = %(m_next)s::text, visit_count = pointer.visit_count + 1,
       counts = CASE WHEN %(m_number)s::int IS NULL THEN pointer.counts
                     ELSE pointer.counts || jsonb_build_object(%(m_next)s::text, %(m_number)s::int) END,
       params = COALESCE(pointer.params || %(m_params)s::jsonb, pointer.params),
       since = CASE WHEN pointer.state = %(m_next)s::text THEN pointer.since ELSE task.now END,
       generation = pointer.generation + (pointer.state <> %(m_next)s::text)::int,
       left_entered_at = pointer.entered_at, entered_at = task.now + COALESCE(%(m_wait)s::interval, '0'),
       entered_in = task.log_length
  FROM task WHERE pointer.id = %(m_pointer)s
RETURNING pointer.id, pointer.visit_count, pointer.left_entered_at, task.id AS run_id, task.log_length, task.now
"""
_VISIT = """
INSERT INTO supervision_visit
       (pointer_id, sequence_num, run_id, logged_in, state, number, outcome, next_state, yielded, errors, entered_at,
        left_at, actor_ref, note)
SELECT id, visit_count, run_id, log_length, %(v_state)s::text, %(v_number)s::int, %(v_outcome)s::text,
       %(m_next)s::text, %(v_yielded)s::bool, %(v_errors)s::text, LEAST(left_entered_at, now), now, '', ''
  FROM moved
"""


@dataclass(frozen=True)
class Standing:
    """Where the pointer of a run's subject stands; ``pointer_id`` None: there is none yet."""

    pointer_id: Any
    run_id: UUID | None
    state: str
    counts: Any
    forgiven: Any
    params: Any
    previous: dict[str, Any] | None
    entered_in: int
    run_from: int
    concurrency_key: str
    subject: str


def standing(task_id: UUID) -> Standing:
    """The pointer of that task's subject as it is now."""
    row = sql.run(_STANDING, {"task_id": str(task_id)})[0]
    counts, forgiven, params, previous = (json.loads(text) if text else None for text in row[3:7])
    return Standing(row[0], row[1], row[2], counts, forgiven, params, previous, row[7], row[8], row[9], row[10])


def begin(table: Table, subject: str, state: str, params: str) -> list[Branch]:
    """A new run of the subject begins in ``state``. ``params`` is JSON."""
    counts = json.dumps({state: 1} if state in table.states else {})
    return [
        Branch(
            "begun",
            _BEGIN,
            {"b_pipeline": table.name, "b_subject": subject, "b_state": state, "b_counts": counts, "b_params": params},
        )
    ]


def leave(pointer_id: int, state: str, number: int, outcome: Outcome, move: Move, entered: int | None) -> list[Branch]:
    """The visit's record, and the pointer's move. ``entered`` is the number of the visit that follows; None at an
    end."""
    params = storable.encode(outcome.params, place="params", limit="MAX_DECISIONS_BYTES") if outcome.params else None
    return [
        Branch(
            "moved",
            _MOVE,
            {"m_pointer": pointer_id, "m_next": move.target, "m_number": entered, "m_params": params,
             "m_wait": move.wait or None},
        ),
        Branch(
            "visit",
            _VISIT,
            {"v_state": state, "v_number": number, "v_outcome": outcome.name, "v_yielded": move.yielded,
             "v_errors": outcome.error},
        ),
    ]  # fmt: skip
