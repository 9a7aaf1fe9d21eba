"""Event handlers: who listens to events."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from batonflow.instrumentation.events.base import BaseEvent

__all__ = ["BaseEventHandler", "NullEventHandler"]


class BaseEventHandler(BaseModel, ABC):
    """Receives the events of the dispatchers it is added to, and of those below them.

    What a handler raises is logged once and never reaches the code that reported the event.

    Attributes:
        hears_pieces: Whether it is interested in the pieces of answers that are streamed. Where nobody is, there are no
            events of them.

    Example:
        >>> class Printer(BaseEventHandler):
        ...     def handle(self, event: BaseEvent, **kwargs: Any) -> Any:
        ...         print(event.class_name())
        >>> get_dispatcher().add_event_handler(Printer())
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    hears_pieces: ClassVar[bool] = True

    @classmethod
    def class_name(cls) -> str:
        """Name of this kind of handler."""
        return cls.__name__

    @abstractmethod
    def handle(self, event: BaseEvent, **kwargs: Any) -> Any:
        """Take notice of ``event``; called in the thread and context of the code that reports it."""

    async def ahandle(self, event: BaseEvent, **kwargs: Any) -> Any:
        """The same for :meth:`Dispatcher.aevent`; calls :meth:`handle` unless overridden."""
        return self.handle(event, **kwargs)


class NullEventHandler(BaseEventHandler):
    """Does nothing and costs nothing: dispatchers leave it out of the count of listeners."""

    def handle(self, event: BaseEvent, **kwargs: Any) -> Any:
        """Do nothing."""
