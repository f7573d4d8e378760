"""Settings of the demos that tests start: files of their own, and where the test wants one an embedded PostgreSQL."""

import os
from pathlib import Path

from project.database import embedded_postgres
from tests.cluster_settings import *  # noqa: F403

MEDIA_ROOT = Path(os.environ["SUPERVISION_TEST_MEDIA"])
if "SUPERVISION_TEST_DATA" in os.environ:
    DATABASES = {"default": embedded_postgres(Path(os.environ["SUPERVISION_TEST_DATA"]))}
