"""The example work of the demo, found by ``supervision`` at start."""

from project import nightly, normalising, onboarding, ordering, retraining

__all__ = ["nightly", "normalising", "onboarding", "ordering", "retraining"]
