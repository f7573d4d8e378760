"""The example work of the demo, found by ``supervision`` at start."""

from project import nightly, normalising, onboarding, retraining

__all__ = ["nightly", "normalising", "onboarding", "retraining"]
