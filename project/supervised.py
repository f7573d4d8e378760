"""The example work of the demo, found by ``supervision`` at start."""

from project import normalising, onboarding, ordering, retraining

__all__ = ["normalising", "onboarding", "ordering", "retraining"]
