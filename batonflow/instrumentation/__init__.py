"""Instrumentation: a tree of named dispatchers that report events and spans to handlers.

::

    dispatcher = get_dispatcher(__name__)        # like logging.getLogger
        get_dispatcher().add_event_handler(...)      # the root receives everything

    @dispatcher.span                             # every call is a span
    async def work() -> None:
        dispatcher.event(MyEvent())              # carries the span's id

Exceptions of handlers are logged once and never reach the traced code. Without handlers a call costs a truth test.
"""

from batonflow.instrumentation.context import active_instrument_tags, active_span_id, instrument_tags
from batonflow.instrumentation.dispatcher import (
    Dispatcher,
    DispatcherSpanMixin,
    Manager,
    get_dispatcher,
    root_dispatcher,
    root_manager,
)
from batonflow.instrumentation.events import BaseEvent
from batonflow.instrumentation.handlers import (
    BaseEventHandler,
    BaseSpan,
    BaseSpanHandler,
    NullEventHandler,
    NullSpanHandler,
    SimpleSpan,
    SimpleSpanHandler,
)

__all__ = [
    "BaseEvent",
    "BaseEventHandler",
    "BaseSpan",
    "BaseSpanHandler",
    "Dispatcher",
    "DispatcherSpanMixin",
    "Manager",
    "NullEventHandler",
    "NullSpanHandler",
    "SimpleSpan",
    "SimpleSpanHandler",
    "active_instrument_tags",
    "active_span_id",
    "get_dispatcher",
    "instrument_tags",
    "root_dispatcher",
    "root_manager",
]
