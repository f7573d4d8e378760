"""What an author imports to write work."""

from supervision.engines.bodies import body
from supervision.engines.context import Context
from supervision.engines.starting import retry, start, start_many
from supervision.engines.steps import Retry
from supervision.errors import Cancelled, ChildFailed, Failure, QuestionAsked, StepFailed
from supervision.kernel.files import StoredFile, store
from supervision.kernel.question_form import Ask, question_form

__all__ = [
    "Ask", "Cancelled", "ChildFailed", "Context", "Failure", "QuestionAsked", "Retry", "StepFailed", "StoredFile",
    "body", "question_form", "retry", "start", "start_many", "store",
]  # fmt: skip
