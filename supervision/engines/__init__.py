"""What an author imports to write work."""

from supervision.engines.bodies import body
from supervision.engines.context import Context
from supervision.engines.dags import Dag, InvalidDag
from supervision.engines.machines import (
    Event,
    EventRefused,
    GuardRejected,
    InvalidMachine,
    InvalidTransition,
    Machine,
    Transition,
)
from supervision.engines.pipelines import InvalidPipeline, Pipeline, Run, State, repoint
from supervision.engines.starting import retry, start, start_many
from supervision.engines.steps import Retry
from supervision.errors import Cancelled, ChildFailed, Failure, QuestionAsked, StepFailed
from supervision.kernel.files import StoredFile, store
from supervision.kernel.question_form import Ask, question_form

__all__ = [
    "Ask", "Cancelled", "ChildFailed", "Context", "Dag", "Event", "EventRefused", "Failure", "GuardRejected",
    "InvalidDag", "InvalidMachine", "InvalidPipeline", "InvalidTransition", "Machine", "Pipeline", "QuestionAsked",
    "Retry", "Run", "State", "StepFailed", "StoredFile", "Transition", "body", "question_form", "repoint", "retry",
    "start", "start_many", "store",
]  # fmt: skip
