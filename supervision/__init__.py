"""Supervised long-running work for Django: see README.md."""

__version__ = "0.1.0"
