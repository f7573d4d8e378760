"""Fields that take what their type says, and don't guess: DRF's own would turn 7 into "7" and "yes" into true."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rest_framework import serializers

from supervision.api.view import unknown_field

_MOST = 2**63 - 1


class Text(serializers.CharField):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(trim_whitespace=False, **kwargs)

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return super().to_internal_value(data)


class Whole(serializers.IntegerField):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"min_value": 0, "max_value": _MOST, **kwargs})

    def to_internal_value(self, data: Any) -> int:
        if not isinstance(data, int) or isinstance(data, bool):
            self.fail("invalid")
        return int(data)


class Flag(serializers.BooleanField):
    def to_internal_value(self, data: Any) -> bool:
        if not isinstance(data, bool):
            self.fail("invalid", input=data)
        return bool(data)


class Strict(serializers.Serializer[Any]):
    """A body whose unknown fields are refused."""

    def to_internal_value(self, data: Any) -> Any:
        unknown = sorted(set(data) - set(self.fields)) if isinstance(data, Mapping) else []
        if unknown:
            raise serializers.ValidationError({name: [unknown_field(self.fields)] for name in unknown})
        return super().to_internal_value(data)


class Act(Strict):
    """What every change of a task or pointer takes."""

    expected_generation = Whole(
        required=False, help_text="The generation that you have seen. Or send it as the header If-Match."
    )
    note = Text(required=False, max_length=2000, allow_blank=True, help_text="For the log.")
