"""People and processes as text, which stays when their rows go."""

from typing import Any

from django.contrib.auth import get_user_model

from supervision.kernel import storable

SYSTEM = "system"


def actor_ref(actor: Any) -> str:
    """Who did it, for reasons and the log: a user's name, a text as it is, ``system`` for nobody."""
    if actor is None or actor == "":
        return SYSTEM
    return _text(actor.get_username() if hasattr(actor, "get_username") else actor)


def owner_ref(owner: Any) -> str:
    """The owner as a key that stays: ``user:7``; empty for nobody."""
    return "" if owner is None else f"{owner._meta.model_name}:{owner.pk}"


def user_id(owner: Any) -> Any:
    """The owner's key if it is a user; an organisation is known by its ``owner_ref`` alone."""
    return owner.pk if isinstance(owner, get_user_model()) else None


def person_ref(actor: Any) -> str:
    """The person as a key that stays and is theirs alone: a user's ``user:7``, a text as it is, empty for nobody.

    Names change hands; votes and separation of duties go by this.
    """
    if actor is None or isinstance(actor, str):
        return _text(actor or "")
    return owner_ref(actor)


def _text(name: Any) -> str:
    return storable.text(name, 200)[:200]
