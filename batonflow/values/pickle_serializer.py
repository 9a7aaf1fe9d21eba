"""A serializer that falls back to pickle. Reading can run code: read only snapshots of your own."""

import base64
import pickle
from typing import Any

from batonflow.values.serializers import JsonSerializer

__all__ = ["PickleSerializer"]


class PickleSerializer(JsonSerializer):
    """Writes JSON where possible, and pickle in base64 otherwise."""

    def serialize(self, value: Any) -> str:
        """Return the JSON text of a value, or its pickle in base64.

        Raises:
            ValueError: The value cannot be pickled either.
        """
        try:
            return super().serialize(value)
        except (TypeError, ValueError):
            try:
                return base64.b64encode(pickle.dumps(value)).decode()
            except (pickle.PicklingError, AttributeError, TypeError) as error:
                raise ValueError(f"neither JSON nor a pickle can be made of it: {error}") from error

    def deserialize(self, value: str) -> Any:
        """Return the value of a text.

        Raises:
            ValueError: It is neither JSON nor a pickle.
        """
        try:
            return super().deserialize(value)
        except ValueError as error:
            try:
                return pickle.loads(base64.b64decode(value, validate=True))  # noqa: S301 - asked for by name
            except (pickle.UnpicklingError, ValueError, EOFError) as unreadable:
                raise ValueError(f"neither JSON ({error}) nor a pickle ({unreadable})") from unreadable
