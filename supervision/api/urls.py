"""The API's addresses, for one ``include()``. Ids are any text, so that no form of one is told from another."""

from django.db import transaction
from django.urls import path, re_path

from supervision.api import acting, machines, openapi, pointers, talking, tasks
from supervision.api.view import Nothing

app_name = "supervision_api"

urlpatterns = [
    path("tasks/", tasks.TasksView.as_view(), name="tasks"),
    # A request that waits must not keep a transaction open, whatever ATOMIC_REQUESTS says.
    path("tasks/<str:pk>/", transaction.non_atomic_requests(tasks.TaskView.as_view()), name="task"),
    path("tasks/<str:pk>/log/", talking.LogView.as_view(), name="log"),
    path("tasks/<str:pk>/questions/", talking.TaskQuestionsView.as_view(), name="task_questions"),
    path("tasks/<str:pk>/signals/", talking.SignalsView.as_view(), name="signals"),
    *(path(f"tasks/<str:pk>/{name}/", view, name=name) for name, view in acting.VIEWS.items()),
    path("questions/", talking.QuestionsView.as_view(), name="questions"),
    path("questions/<str:pk>/", talking.QuestionView.as_view(), name="question"),
    path("questions/<str:pk>/answer/", talking.AnswerView.as_view(), name="answer"),
    path("pointers/", pointers.PointersView.as_view(), name="pointers"),
    path("pointers/<str:pk>/", pointers.PointerView.as_view(), name="pointer"),
    path("pointers/<str:pk>/visits/", pointers.VisitsView.as_view(), name="visits"),
    path("pointers/<str:pk>/repoint/", pointers.RepointView.as_view(), name="repoint"),
    path("machines/<str:machine>/<str:subject>/", machines.StandingView.as_view(), name="standing"),
    path("machines/<str:machine>/<str:subject>/events/", machines.MachineEventsView.as_view(), name="machine_events"),
    path("schema/", openapi.SchemaView.as_view(), name="schema"),
    path("docs/", openapi.DocsView.as_view(), name="docs"),
    re_path(r"", Nothing.as_view(), name="nothing"),
]
