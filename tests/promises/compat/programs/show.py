"""What the programs print with: a title, values in one spelling, and the types of a run's streamed events."""

import asyncio
import warnings

from workflows.events import StopEvent


def title(text):
    print(f"-- {text}")


def errors(action, *words):
    """Call `action`; print the error's type and which of `words` its text contains."""
    try:
        value = action()
    except Exception as error:
        print(f"{type(error).__name__}:", *(word if word in str(error) else f"NOT {word!r} in {error}" for word in words))
        return error
    print("no error:", value)
    return None


async def fails(awaitable, *words):
    """Await; print the error's type and which of `words` its text contains."""
    try:
        value = await awaitable
    except Exception as error:
        print(f"{type(error).__name__}:", *(word if word in str(error) else f"NOT {word!r} in {error}" for word in words))
        return error
    print("no error:", value)
    return None


async def streamed(handler, in_order=True):
    """Read the whole stream, print the types of its events, return the events."""
    events = [event async for event in handler.stream_events()]
    names = [type(event).__name__ for event in events]
    print("stream:", *(names if in_order else sorted(names)))
    return events


async def until(predicate, seconds=5.0):
    """Wait until the condition holds."""
    for _ in range(int(seconds / 0.005)):
        if predicate():
            return True
        await asyncio.sleep(0.005)
    return False


def warned(action, category):
    """Call `action`; print whether it warned; return what it returned."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        value = action()
    print("warned:", sorted({w.category.__name__ for w in caught if issubclass(w.category, category)}))
    return value


def last(events):
    """The terminal event's type name."""
    return [type(event).__name__ for event in events if isinstance(event, StopEvent)][-1]
