"""Tasks with dependencies, many at once: each node a supervised child, started when what it waits for has ended.

>>> from supervision.engines.dags import Dag
"""

from supervision.engines.dags.dag import Dag, dags
from supervision.engines.dags.errors import InvalidDag, NodesFailed

__all__ = ["Dag", "InvalidDag", "NodesFailed", "dags"]
