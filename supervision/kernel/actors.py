"""People and processes as text, which stays when their rows go. Pure."""

from typing import Any

SYSTEM = "system"


def actor_ref(actor: Any) -> str:
    """Who did it, for reasons and the log: a user's name, a text as it is, ``system`` for nobody."""
    if actor is None or actor == "":
        return SYSTEM
    if isinstance(actor, str):
        return actor[:200]
    return str(actor.get_username() if hasattr(actor, "get_username") else actor)[:200]


def owner_ref(owner: Any) -> str:
    """The owner as a key that stays: ``user:7``; empty for nobody."""
    return "" if owner is None else f"{owner._meta.model_name}:{owner.pk}"


def person_ref(actor: Any) -> str:
    """The person as a key that stays and is theirs alone: a user's ``user:7``, a text as it is, empty for nobody.

    Names change hands; votes and separation of duties go by this.
    """
    if actor is None or isinstance(actor, str):
        return (actor or "")[:200]
    return owner_ref(actor)
