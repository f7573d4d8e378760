"""The only code that knows django-q2: the broker, the worker command, the drive of one task, and the tick."""
