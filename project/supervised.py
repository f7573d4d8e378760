"""The example work of the demo, found by ``supervision`` at start."""

from project import onboarding

__all__ = ["onboarding"]
