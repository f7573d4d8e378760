#!/usr/bin/env python
"""Django's command-line utility for this project."""

import os
import sys


def main() -> None:
    """Run the command named in ``sys.argv``."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
    try:
        from django.core.management import execute_from_command_line
    except ImportError as error:
        raise SystemExit(
            "Django is not installed in this Python. Set up the virtual environment first: see README.md."
        ) from error
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
