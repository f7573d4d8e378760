"""The verbs of people in words, for buttons and confirmations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.utils.translation import gettext_lazy

from supervision.engines import verbs
from supervision.kernel.models import Task

if TYPE_CHECKING:
    from django.utils.functional import _StrPromise as Words


@dataclass(frozen=True)
class Verb:
    """One thing to do to a task, with its words."""

    does: verbs.Verb
    label: Words
    """On the button and in the list's menu."""
    done: Words
    """``{0}`` is the task."""
    meaning: Words
    """What will happen, on the confirmation."""
    is_grave: bool = False

    @property
    def name(self) -> str:
        return self.does.name

    @property
    def codename(self) -> str:
        return self.does.codename

    @property
    def grant(self) -> str:
        """The word of the admin's ``has_<grant>_permission``."""
        return self.codename.removesuffix("_task")

    def is_possible(self, task: Task) -> bool:
        return self.does.is_possible(task)


VERBS = {
    verb.name: verb
    for verb in (
        Verb(
            verbs.VERBS["pause"], gettext_lazy("Pause"),
            gettext_lazy("{0} is paused, or pausing after the current step."),
            gettext_lazy("A running task pauses after the current step. A waiting one stays where it is."),
        ),
        Verb(
            verbs.VERBS["resume"], gettext_lazy("Resume"), gettext_lazy("{0} goes on."),
            gettext_lazy("It goes on where it stopped. Deadlines that were set stand."),
        ),
        Verb(
            verbs.VERBS["cancel"], gettext_lazy("Cancel"),
            gettext_lazy("{0} is cancelled, after its clean-up."),
            gettext_lazy("It ends. If it ever ran, a worker lets it clean up first. This can't be taken back."),
            is_grave=True,
        ),
        Verb(
            verbs.VERBS["expire"], gettext_lazy("Expire now"), gettext_lazy("{0} is expired."),
            gettext_lazy("It ends as if its time had run out. This can't be taken back."),
            is_grave=True,
        ),
        Verb(
            verbs.VERBS["retry"], gettext_lazy("Retry"), gettext_lazy("{0} is tried again, as a new task."),
            gettext_lazy("A new task with the same arguments, decisions and answers. This one stays as it is."),
        ),
    )
}  # fmt: skip
