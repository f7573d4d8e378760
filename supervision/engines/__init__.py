"""What an author imports to write work."""

from supervision.engines.bodies import body
from supervision.engines.context import Context
from supervision.engines.starting import retry, start
from supervision.errors import Cancelled, Failure, QuestionAsked
from supervision.kernel.question_form import Ask

__all__ = ["Ask", "Cancelled", "Context", "Failure", "QuestionAsked", "body", "retry", "start"]
