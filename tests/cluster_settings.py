"""Settings of the clusters that tests start: the project's, and what the test gave."""

import json
import os

from project.settings import *  # noqa: F403
from project.settings import DATABASES as _DATABASES
from project.settings import INSTALLED_APPS as _APPS
from project.settings import Q_CLUSTER as _Q_CLUSTER

INSTALLED_APPS = ["tests.bodies", *_APPS]
SUPERVISION = json.loads(os.environ.get("SUPERVISION_TEST", "{}"))
Q_CLUSTER = {**_Q_CLUSTER, "workers": int(os.environ.get("SUPERVISION_TEST_WORKERS", "2"))}

if os.environ.get("SUPERVISION_TEST_POOLED"):  # as docs/workers.md says it for a transaction-pooling proxy
    _DATABASES["default"]["OPTIONS"]["prepare_threshold"] = None
    _DATABASES["default"]["DISABLE_SERVER_SIDE_CURSORS"] = True
