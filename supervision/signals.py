"""Django signals, past tense, sent after the commit of what they tell of, with ``send_robust``.

Every receiver gets ``task_id`` (UUID), ``body``, ``event``, ``state``, ``reason``, ``generation``, ``lease`` and
``sequence_num`` of the log entry; ``sender`` is the Task model. Arguments and answers are not passed: read the row.
``machine_moved`` instead gets ``machine``, ``subject``, ``event``, ``source``, ``target`` and ``sequence_num`` of the
history; its ``sender`` is the Standing model.
The same events of tasks go to the logger ``supervision.events`` with these names as attributes of the record.
"""

from django.dispatch import Signal

task_created = Signal()
task_taken = Signal()
task_parked = Signal()
task_resumed = Signal()
task_completed = Signal()
task_failed = Signal()
task_expired = Signal()
task_cancelled = Signal()
pause_requested = Signal()
ending_requested = Signal()
question_asked = Signal()
question_answered = Signal()
vote_cast = Signal()
signal_sent = Signal()
signal_consumed = Signal()
machine_moved = Signal()
slot_freed = Signal()
