"""A new user's first week: account, welcome, then a verified address, or a reminder and in the end a closed account.

The signal ``email_verified`` tells that the user has followed the link in the welcome.
"""

from datetime import timedelta
from typing import Annotated, Any

from django import forms
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.core.mail import EmailMessage
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from supervision.engines import Cancelled, Context, Failure, Retry, body

SOON_AGAIN = Retry(attempts=5, first_delay=2, factor=2, max_delay=300, on=(OSError,))
"""For mail: a server that is away, or refuses for now, is asked again; smtplib's errors are OSErrors."""


@body("onboarding", label="Onboarding", expires_after=timedelta(days=30))
def onboard(
    task: Context,
    *,
    email: Annotated[str, forms.EmailField(label=gettext_lazy("E-mail address"))],
    verify_hours: Annotated[float, "The reminder is sent after this time."] = 72,
    remind_hours: Annotated[float, "So long after the reminder the account is closed."] = 48,
) -> dict[str, Any]:
    user_id = task.step("create account", create_account, email, atomic=True)
    try:
        return _verify_and_provision(task, user_id, email, verify_hours, remind_hours)
    except Cancelled:
        task.step("deactivate", deactivate, user_id, key="cancelled", atomic=True)
        _send(task, "say goodbye", email, _("Your account was closed"), _("We have stopped setting it up."))
        raise


def _verify_and_provision(
    task: Context, user_id: int, email: str, verify_hours: float, remind_hours: float
) -> dict[str, Any]:
    _send(task, "welcome", email, _("Welcome"), _("Please follow the link to verify your address."))
    signal = task.wait_for_signal("email_verified", timeout=timedelta(hours=verify_hours))
    if signal is None:
        _send(task, "remind", email, _("Please verify your address"), _("Your account will be closed otherwise."))
        signal = task.wait_for_signal("email_verified", timeout=timedelta(hours=remind_hours))
    if signal is None:
        task.step("deactivate", deactivate, user_id, atomic=True)
        _send(task, "notify", email, _("Your account was closed"), _("Nobody has verified the address."))
        return {"outcome": "deactivated", "user_id": user_id}
    workspace = task.step("provision", provision, user_id, atomic=True)
    _send(task, "notify", email, _("Your workspace is ready"), _("It is called %(name)s.") % {"name": workspace})
    return {"outcome": "provisioned", "user_id": user_id, "workspace": workspace}


def _send(task: Context, name: str, email: str, subject: str, text: str) -> None:
    task.step(name, send, task, email, subject, text, retry=SOON_AGAIN, timeout=30)


# --- the steps


def create_account(email: str) -> int:
    """The new user's key. The row and the step's record are one commit: never an account without its onboarding."""
    users = get_user_model()._default_manager
    if users.filter(username=email).exists():
        raise Failure(_("There is an account of %(email)s already.") % {"email": email})
    return int(users.create(username=email, email=email).pk)


def send(task: Context, email: str, subject: str, text: str) -> None:
    """Sent again if the process dies between the mail server's word and our record, so it says that it is the same."""
    message_id = f"<{task.idempotency_key.replace(':', '.').replace(' ', '-')}@supervision.example>"
    EmailMessage(subject, text, to=[email], headers={"Message-ID": message_id}).send()


def provision(user_id: int) -> str:
    user = get_user_model()._default_manager.get(pk=user_id)
    workspace = Group.objects.create(name=f"workspace of {user.get_username()}")
    user.groups.add(workspace)
    return workspace.name


def deactivate(user_id: int) -> None:
    get_user_model()._default_manager.filter(pk=user_id).update(is_active=False)
