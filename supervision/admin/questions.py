"""The inbox: what waits for a person, for how long and until when; and the page where a question is answered."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import admin, messages
from django.contrib.admin import helpers
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from supervision.admin import answering
from supervision.admin.access import may, visible_questions
from supervision.admin.closed import ClosedAdmin
from supervision.admin.filters import AskingBody
from supervision.admin.paging import CappedPaginator
from supervision.conf import settings
from supervision.kernel import entitlement
from supervision.kernel.clock import Now
from supervision.kernel.models import Question
from supervision.showing import downloads
from supervision.showing.tasks import body_label, moment, shortened


class Waiting(admin.SimpleListFilter):
    """What waits for me, unless something else is asked for."""

    title = gettext_lazy("whose turn")
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Any:
        return (("all", _("all that wait")), *((value, label) for value, label in Question.Status.choices[1:]))

    def choices(self, changelist: Any) -> Any:
        yield {
            "selected": self.value() is None,
            "query_string": changelist.get_query_string(remove=[self.parameter_name]),
            "display": _("waiting for me"),
        }
        for value, label in self.lookup_choices:
            yield {
                "selected": self.value() == value,
                "query_string": changelist.get_query_string({self.parameter_name: value}),
                "display": label,
            }

    def queryset(self, request: HttpRequest, questions: Any) -> Any:
        value = self.value()
        if value in Question.Status.values and value != Question.Status.PENDING:
            return questions.filter(status=value).order_by("-id")
        pending = questions.pending()
        return pending if value == "all" else entitlement.answerable(pending, request.user)


class QuestionAdmin(ClosedAdmin):
    """Questions: oldest first. Answered through the kernel's verb, which judges who may."""

    list_filter = (Waiting, AskingBody)
    empty_value_display = ""
    list_display_links = None
    list_per_page = 50
    list_max_show_all = 0
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    paginator = CappedPaginator
    sortable_by = ()
    ordering = ("id",)
    actions = ["together"]
    change_list_template = "admin/supervision/question/change_list.html"

    class Media:
        css = {"all": ["supervision/control-room.css"]}
        js = ["supervision/live.js"]

    def get_queryset(self, request: HttpRequest) -> Any:
        questions = visible_questions(request.user).annotate(db_now=Now()).select_related("task")
        wide = ("locked_decisions", "result")
        return questions.defer(*(f"task__{name}" for name in wide)).order_by("id")

    def get_list_display(self, request: HttpRequest) -> Any:
        is_waiting = request.GET.get("status", "all") == "all"
        return (self.prompt, self.waiting, self.until) if is_waiting else (self.prompt, self.waiting, self.ended)

    @admin.display(description=gettext_lazy("question"))
    def prompt(self, question: Question) -> Any:
        """The question, and the work that asks it."""
        task = question.task
        return format_html(
            '<a href="{}" class="sv-text sv-body" dir="auto">{}</a><span class="sv-line">{} <bdi>{}</bdi></span>',
            reverse("admin:supervision_question_change", args=[question.pk]),
            shortened(answering.masked_prompt(question), 160) or question.key,
            body_label(task.body), shortened(task.subject, 80),
        )  # fmt: skip

    @admin.display(description=gettext_lazy("waiting since"))
    def waiting(self, question: Any) -> Any:
        return moment(question.asked_at, question.db_now)

    @admin.display(description=gettext_lazy("until"))
    def until(self, question: Any) -> Any:
        if question.expires_at is None:
            return ""
        return format_html("{} {}", _("expires"), moment(question.expires_at, question.db_now))

    @admin.display(description=gettext_lazy("status"))
    def ended(self, question: Any) -> Any:
        if question.status != Question.Status.ANSWERED:
            return question.get_status_display()
        return format_html("{} {} <bdi>{}</bdi>", _("answered"), moment(question.answered_at, question.db_now),
                           question.answered_by_ref)  # fmt: skip

    @admin.action(description=gettext_lazy("Answer together"), permissions=["answer"])
    def together(self, request: HttpRequest, queryset: Any) -> Any:
        """Opens the first one's page with the others ticked; answering is what that page does."""
        if request.POST.get("select_across") == "1":
            self.message_user(request, _("Select rows on this page."), messages.ERROR)
            return None
        chosen = list(queryset.order_by("id").values_list("pk", flat=True))
        if not chosen:
            self.message_user(request, _("These questions are not waiting any more."), messages.WARNING)
            return None
        address = reverse("admin:supervision_question_change", args=[chosen[0]])
        return HttpResponseRedirect(f"{address}?with={','.join(str(pk) for pk in chosen[1:])}")

    def response_action(self, request: HttpRequest, queryset: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            for raw in request.POST.getlist(helpers.ACTION_CHECKBOX_NAME):
                UUID(raw)
        except ValueError:
            self.message_user(request, _("That is no question's id. Nothing was changed."), messages.ERROR)
            return None
        return super().response_action(request, queryset, *args, **kwargs)

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        return super().changelist_view(request, {"title": _("Questions"), **(extra_context or {})})

    # --- permissions

    def has_view_permission(self, request: HttpRequest, obj: Question | None = None) -> bool:
        """Viewers, and whoever has something to answer."""
        return self.has_answer_permission(request) or may(request.user, "view_question") or may(
            request.user, "view_task"
        )  # fmt: skip

    def has_answer_permission(self, request: HttpRequest) -> bool:
        """Whoever may answer anything: by permission, or because an author named them or their group."""
        if may(request.user, "answer_question"):
            return True
        pending = Question.objects.using(settings.DATABASE).pending()
        return entitlement.answerable(pending, request.user).exists()

    def has_module_permission(self, request: HttpRequest) -> bool:
        return request.user.is_active and self.has_view_permission(request)

    # --- one question

    def get_urls(self) -> list[URLPattern]:
        whole = self.admin_site.admin_view(self.whole_view)
        return [path("<uuid:pk>/whole/", whole, name="supervision_question_whole"), *super().get_urls()]

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        question = self._question(request, object_id)
        if request.method == "POST":
            return answering.answer(self, request, question)
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
        return answering.page(self, request, question)

    def whole_view(self, request: HttpRequest, pk: UUID) -> HttpResponse:
        return downloads.whole_prompt(self._question(request, str(pk)))

    def history_view(self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None) -> Any:
        raise PermissionDenied

    def _question(self, request: HttpRequest, object_id: str) -> Question:
        """The question, if it exists for this person; else the same answer whether it exists or not."""
        try:
            found = (
                visible_questions(request.user)
                .filter(pk=UUID(object_id))
                .select_related("task")
                .prefetch_related("votes")
                .first()
            )
        except ValueError:
            found = None
        if found is None:
            if not self.has_view_permission(request):
                raise PermissionDenied
            raise Http404
        return found
