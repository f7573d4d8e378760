"""What people do here: a verb, behind the generation that their page showed; an answer, guarded by its question.

What didn't happen is told on the fresh page, with the status that says why; nothing was changed then.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.utils.translation import gettext as _

from supervision import wording
from supervision.errors import Busy, Conflict, InvalidAnswer, NotEntitled, NotStorable, SupervisionError
from supervision.kernel import questions, sight
from supervision.kernel.models import Question, Task
from supervision.pages.reading import task_page
from supervision.pages.responses import or_not_found, own_page
from supervision.showing.questions import bound
from supervision.showing.tasks import body_label
from supervision.showing.verbs import VERBS

LONGEST_NOTE = 2000
_VIA = "page"


def _posted(view: Callable[..., HttpResponse | None]) -> Callable[..., HttpResponseBase]:
    """What acts is POSTed. Who comes by GET had to sign in between, or reloads what they were answered: to the page."""
    act = or_not_found(view)

    @wraps(view)
    def respond(request: HttpRequest, pk: str, **route: str) -> HttpResponseBase:
        if request.method == "POST":
            return act(request, pk, **route)
        messages.info(request, _("Nothing was changed. Look at it, then click again."), fail_silently=True)
        return HttpResponseRedirect(reverse("supervision_pages:task", args=[pk]))

    return own_page("GET", "HEAD", "POST")(respond)


@_posted
def act(request: HttpRequest, pk: str, name: str) -> HttpResponse | None:
    """Pause, resume, cancel, expire, retry."""
    task, verb = sight.find_task(request.user, pk), VERBS.get(name)
    if task is None or verb is None:
        return None
    if not sight.may(request.user, verb.codename, task):
        return task_page(request, task, status=403, notice=_("You may look at this, and not do that to it."))
    generation = _generation(request)
    if generation is None:
        said = _("Nothing was changed, for your page didn’t say what it showed. This is how it stands now.")
        return task_page(request, task, status=428, notice=said)
    try:
        result = verb.does.run(task.pk, by=request.user, note=note_in(request), expected_generation=generation)
    except SupervisionError as refusal:
        return task_page(request, _again(request, task), status=_status(refusal), notice=_why(refusal))
    said = _("%(what)s: %(outcome)s.") % {"what": body_label(task.body), "outcome": wording.outcome(name, result)}
    messages.success(request, said, fail_silently=True)
    return HttpResponseRedirect(reverse("supervision_pages:task", args=[result.pk]))


@_posted
def answer(request: HttpRequest, pk: str, question: str) -> HttpResponse | None:
    """Answers a question of the task, or votes on it."""
    task = sight.find_task(request.user, pk)
    if task is None:
        return None
    rows = Question.objects.using(task._state.db).filter(task=task)
    asked = rows.filter(pk=sight.as_id(question)).first()
    if asked is None:
        return None
    form = bound(asked, task.secrets, request)
    try:
        said = questions.answer(asked.pk, form, by=request.user, via=_VIA, note=note_in(request))
    except (InvalidAnswer, NotStorable) as refusal:
        if isinstance(refusal, NotStorable):
            form.add_error(None, str(refusal))
        return task_page(request, task, status=422, question=asked, form=form)
    except Busy as refusal:
        return task_page(request, task, status=503, notice=str(refusal), question=asked, form=form)
    except SupervisionError as refusal:
        return task_page(request, _again(request, task), status=_status(refusal), notice=str(refusal))
    messages.success(request, thanks(said), fail_silently=True)
    return HttpResponseRedirect(reverse("supervision_pages:task", args=[task.pk]) + f"#question-{asked.pk}")


def thanks(question: Question) -> str:
    """What came of an answer that was taken."""
    if question.status == Question.Status.PENDING:
        return _("Your vote counts. The question waits for others.")
    return _("Your answer was recorded.")


def note_in(request: HttpRequest) -> str:
    return request.POST.get("note", "").replace("\x00", "").strip()[:LONGEST_NOTE]


def _generation(request: HttpRequest) -> int | None:
    raw = request.POST.get("expected_generation", "")
    return int(raw) if raw.isascii() and raw.isdecimal() and len(raw) < 19 else None


def _again(request: HttpRequest, task: Task) -> Task:
    """As it stands after the refusal."""
    return sight.find_task(request.user, task.pk) or task


def _status(refusal: SupervisionError) -> int:
    if isinstance(refusal, NotEntitled):
        return 403
    return 503 if isinstance(refusal, Busy) else 409


def _why(refusal: SupervisionError) -> str:
    if isinstance(refusal, Conflict):
        return _("Nothing was changed: this has changed since you opened it. This is how it stands now.")
    return _("Nothing was changed. %(why)s") % {"why": refusal}
