"""Sabotages by name: a guard taken out of the code, and the test that must notice.

Each is an exact piece of the source and what stands in its place; it must occur exactly once, so that a sabotage of
code that has changed fails by name and isn't quietly nothing.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Sabotage:
    file: str
    old: str
    new: str
    caught_by: str
    """The test, as pytest names it."""


_RACES, _INVARIANTS = "tests/integration/test_races.py::", "tests/integration/test_invariants.py::"
_GONE, _FAST = "tests/integration/test_gone.py::", "tests/integration/test_fast_paths.py::"

_LIMITS = "tests/integration/test_limits.py::"
_CHILDREN = "tests/integration/test_children.py::"
_DAGS = "tests/integration/test_dag_races.py::"

SABOTAGES = {
    "no lease check in a checkpoint": Sabotage(
        "kernel/lease.py",
        "WHERE id = %(task_id)s::uuid AND lease = %(lease)s AND current_state = 'running'",
        "WHERE id = %(task_id)s::uuid AND current_state = 'running'",
        f"{_INVARIANTS}test_a_stale_worker_records_nothing[checkpoint]",
    ),
    "a take that asks for no lease": Sabotage(
        "kernel/lease.py",
        "task.id = %(task_id)s::uuid AND task.lease = %(lease)s AND task.current_state IN ('pending', 'parked')",
        "task.id = %(task_id)s::uuid AND task.current_state IN ('pending', 'parked')",
        f"{_RACES}test_an_old_package_of_an_earlier_lease_takes_nothing",
    ),
    "no state guard": Sabotage(
        "kernel/transition.py",
        "if (task.current_state, to) not in TRANSITIONS:",
        "if (task.current_state, to) is None:",
        f"{_INVARIANTS}test_only_the_transitions_of_the_table_are_written",
    ),
    "a wait checked before the lock": Sabotage(
        "kernel/signals_in.py",
        'with committing("consume"), locked(task_id, lease=lease) as task:\n        signal = _next(task, name)\n',
        "early = Signal.objects.filter(task_id=task_id, name=name, consumed_in=None).first()\n"
        '    with committing("consume"), locked(task_id, lease=lease) as task:\n        signal = early\n',
        f"{_RACES}test_a_task_that_would_park_behind_a_signal_consumes_it_instead",
    ),
    "an answer that wakes nobody": Sabotage(
        "kernel/questions.py",
        "wake=is_last and task.current_state == State.PARKED,",
        "wake=False,",
        f"{_RACES}test_two_last_answers_at_once_wake_the_task_exactly_once",
    ),
    "the host's clock in expiry": Sabotage(
        "kernel/clock.py",
        'function = "supervision_now_v1"',
        'function = "supervision_now_v1"\n\n'
        "    def as_sql(self, compiler, connection, **extra):  # type: ignore\n"
        "        from django.utils import timezone\n\n"
        '        return "%s::timestamptz", [timezone.now()]',
        f"{_INVARIANTS}test_a_hosts_wrong_clock_reaps_nobody_and_moves_no_expiry",
    ),
    "a suspension that `except Exception` swallows": Sabotage(
        "errors.py",
        "class DriveEnded(BaseException):",
        "class DriveEnded(Exception):",
        "tests/chaos/probes.py::test_author_that_catches_every_exception_lets_a_suspension_pass",
    ),
    "a beat on the task row": Sabotage(
        "kernel/lease.py",
        "SELECT task_id FROM supervision_heartbeat\n",
        "SELECT task_id FROM supervision_heartbeat JOIN LATERAL (SELECT 1 FROM supervision_task "
        "WHERE id = %(task_id)s::uuid FOR NO KEY UPDATE) AS task ON true\n",
        f"{_RACES}test_a_beat_passes_a_client_that_holds_the_task_and_the_live_worker_is_not_reaped",
    ),
    "a beat with the time before its wait": Sabotage(
        "kernel/lease.py",
        "SET beat_at = supervision_clock_v1(),",
        "SET beat_at = supervision_now_v1(),",
        f"{_RACES}test_a_beat_carries_the_time_after_its_wait_for_a_lock",
    ),
    "a reaper that doesn't judge again under the lock": Sabotage(
        "kernel/reaping.py",
        "        if not is_lost:\n            return False\n",
        "",
        f"{_RACES}test_a_reaper_that_meets_a_beat_waits_for_it_and_lets_the_worker_live",
    ),
    "recoveries that nobody counts": Sabotage(
        "kernel/reaping.py",
        "recoveries = task.recoveries + 1",
        "recoveries = task.recoveries",
        f"{_GONE}test_many_are_parked_at_once_and_poison_among_them_is_a_dead_letter",
    ),
    "a completion that looks at nothing else": Sabotage(
        "kernel/ends.py",
        "       AND {of_parent} AND ending = '' AND pause_requested_at IS NULL AND cancel_requested_at IS NULL\n",
        "",
        f"{_FAST}test_completion_that_something_hangs_on_goes_the_general_way",
    ),
    "an offer that waits for another": Sabotage(
        "kernel/due.py",
        "       FOR NO KEY UPDATE OF task SKIP LOCKED\n",
        "",
        f"{_FAST}test_offer_passes_over_what_another_is_offering",
    ),
    "a count of who runs without the slot lock": Sabotage(
        "kernel/limits.py",
        "pg_advisory_xact_lock(1937076837, hashtext(%(body)s))",
        "hashtext(%(body)s)",
        f"{_LIMITS}test_two_takes_at_once_get_one_slot_between_them",
    ),
    "a slot that nobody gives away": Sabotage(
        "worker/tick.py",
        "woken=slots.sweep()",
        "woken=0",
        f"{_LIMITS}test_slots_that_nobody_gave_away_are_found_by_the_tick",
    ),
    "a parent that is woken by no child": Sabotage(
        "kernel/ends.py",
        "SET children_awaited = children_awaited - 1,",
        "SET children_awaited = children_awaited,",
        f"{_CHILDREN}test_the_last_two_children_end_at_the_same_moment_and_wake_their_parent_once[ways0]",
    ),
    "a join that both finishers start": Sabotage(
        "kernel/countdown.py",
        "SET waiting_for = waiting_for - 1,",
        "SET waiting_for = 0,",
        f"{_DAGS}test_the_last_two_finishers_of_a_join_start_it_once[paused0]",
    ),
    "a node that starts behind a pause": Sabotage(
        "kernel/countdown.py",
        "run.ending = '' AND run.pause_requested_at IS NULL",
        "run.ending = ''",
        f"{_DAGS}test_a_pause_and_an_end_at_once_start_nothing_behind_the_pause",
    ),
    "a pid taken for its process": Sabotage(
        "kernel/identity.py",
        'return state in "ZX" or bool(started and start != started)',
        'return state in "ZX"',
        f"{_GONE}test_later_process_of_the_same_pid_is_another_one",
    ),
}
