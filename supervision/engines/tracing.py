"""Where a step's own time can be measured. Nobody does, unless ``worker/telemetry.py`` finds OpenTelemetry."""

from collections.abc import Callable
from contextlib import AbstractContextManager

step: Callable[[str], AbstractContextManager[object]] | None = None
"""What to be within while the author's function of the step of that name runs; None: nothing."""
