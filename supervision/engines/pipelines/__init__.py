"""State tables that a subject goes through, one run at a time: submit, wait for hours, decide, loop, survive restarts.

>>> from supervision.engines.pipelines import Pipeline, Run, State
"""

from supervision.engines.pipelines.attached import PipelineRows
from supervision.engines.pipelines.definition import State
from supervision.engines.pipelines.errors import InvalidPipeline
from supervision.engines.pipelines.pipeline import Pipeline
from supervision.engines.pipelines.repointing import repoint
from supervision.engines.pipelines.run import Previous, Run
from supervision.kernel import leftovers, retention

__all__ = ["InvalidPipeline", "Pipeline", "Previous", "Run", "State", "repoint"]

retention.attach(PipelineRows())
leftovers.also_in("supervision_pointer", "params")  # what a run handed on outlives it
leftovers.also_in("supervision_pointer", "previous")
