"""The control room: Django admin that an operator wants open all day. Importing it registers its pages."""

from django.contrib import admin

from supervision.admin.holds import HoldAdmin
from supervision.admin.machines import MachineAdmin
from supervision.admin.pipelines import PointerAdmin
from supervision.admin.questions import QuestionAdmin
from supervision.admin.schedules import ScheduleAdmin
from supervision.admin.standings import StandingAdmin
from supervision.admin.subject import SupervisedAdmin
from supervision.admin.tasks import TaskAdmin
from supervision.models import Hold, Pointer, Question, Standing, SupervisedSchedule, Task

admin.site.register(Task, TaskAdmin)
admin.site.register(Question, QuestionAdmin)
admin.site.register(Hold, HoldAdmin)
admin.site.register(Pointer, PointerAdmin)
admin.site.register(Standing, StandingAdmin)
admin.site.register(SupervisedSchedule, ScheduleAdmin)

__all__ = [
    "HoldAdmin", "MachineAdmin", "PointerAdmin", "QuestionAdmin", "ScheduleAdmin", "StandingAdmin", "SupervisedAdmin",
    "TaskAdmin",
]  # fmt: skip
