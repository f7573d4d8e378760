"""The example project: settings, front page, and the work that the demo supervises."""
