"""Results and progress of ``ctx.map``."""

from typing import NamedTuple

from pydantic import BaseModel, ConfigDict
from typing_extensions import override

from batonflow.workflow_core.events import Event, SerializableException

__all__ = ["MapError", "Progress", "StepProgress"]


class MapError(BaseModel):
    """The failure of one item, in the results of ``ctx.map(..., on_error="collect")``.

    Attributes:
        index: The place of the item.
        error: The exception of its last attempt.

    Example:
        >>> failed = [result for result in results if isinstance(result, MapError)]
    """

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    index: int
    error: SerializableException

    @override
    def __str__(self) -> str:
        return f"item {self.index}: {type(self.error).__name__}: {self.error}"


class Progress(NamedTuple):
    """The progress of ``ctx.map`` in a step.

    Attributes:
        step: The step; in a child run with the path of the run and a dot before it.
        done: The number of items that are done.
        total: The number of all items.
    """

    step: str
    done: int
    total: int


class StepProgress(Event):
    """``ctx.map`` goes on in a step; streamed at most ten times a second.

    Attributes:
        step: The step, as in ``Progress``.
        done: The number of items that are done.
        total: The number of all items.
    """

    step: str
    done: int
    total: int
