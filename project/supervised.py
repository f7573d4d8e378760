"""The example work of the demo, found by ``supervision`` at start."""

from project import normalising, onboarding, retraining

__all__ = ["normalising", "onboarding", "retraining"]
