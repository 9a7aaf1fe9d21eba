"""Pickle as a fallback for what JSON cannot write. Reading a pickle can run code: use it for your own snapshots only."""

import base64
import pickle
from typing import Any

from batonflow.workflow_core.context.serializers import JsonSerializer

__all__ = ["PickleSerializer"]


class PickleSerializer(JsonSerializer):
    """JSON where it can be, pickle (base64) where it cannot."""

    def serialize(self, value: Any) -> str:
        try:
            return super().serialize(value)
        except (TypeError, ValueError):
            return base64.b64encode(pickle.dumps(value)).decode()

    def deserialize(self, value: str) -> Any:
        try:
            return super().deserialize(value)
        except ValueError as error:
            try:
                return pickle.loads(base64.b64decode(value, validate=True))  # noqa: S301 - asked for by name
            except (pickle.UnpicklingError, ValueError, EOFError) as unreadable:
                raise ValueError(f"neither JSON ({error}) nor a pickle ({unreadable})") from unreadable
