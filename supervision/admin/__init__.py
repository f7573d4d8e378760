"""The control room: Django admin that an operator wants open all day. Importing it registers its pages."""

from django.contrib import admin

from supervision.admin.holds import HoldAdmin
from supervision.admin.questions import QuestionAdmin
from supervision.admin.subject import SupervisedAdmin
from supervision.admin.tasks import TaskAdmin
from supervision.models import Hold, Question, Task

admin.site.register(Task, TaskAdmin)
admin.site.register(Question, QuestionAdmin)
admin.site.register(Hold, HoldAdmin)

__all__ = ["HoldAdmin", "QuestionAdmin", "SupervisedAdmin", "TaskAdmin"]
