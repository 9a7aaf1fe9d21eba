"""Messages that tell when they are changed in place.

Records refer to a message that they hold already instead of writing it again. So they must know when a program has
changed it, and comparing all messages of a conversation at each step would cost more than writing them. A watched
message shares a watch with its blocks, the list of these and its additional data. A change of any of them, through an
attribute or a method, takes the watch away and advances a count. While the count stands still, no watched message of
this process has changed.

Three things are not noticed: changes further inside, such as in the arguments of a call, changes through
``__dict__``, and changes of a dict of additional data that the program has got before the message was watched.
"""

from typing import Any, cast

from batonflow.llms.blocks import BaseContentBlock, Watchable, WatchedList, notice_changes, watch_count
from batonflow.llms.lazy_fields import KwargsWithCalls

__all__ = ["Watch", "WatchedCalls", "WatchedDict", "watch"]


class WatchedDict(dict[str, Any]):
    """The dict of a watched message; copies of it are plain dicts."""

    __slots__ = ("batonflow_watch",)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


class WatchedCalls(KwargsWithCalls):
    """The additional data of a watched message with tool calls; copies of it are not watched."""

    __slots__ = ("batonflow_watch",)


for _cls, _base in ((WatchedDict, dict), (WatchedCalls, KwargsWithCalls)):
    notice_changes(_cls, _base, "pop popitem clear update setdefault __setitem__ __delitem__ __ior__")


class Watch:
    """The watch of one message as it is now."""

    __slots__ = ()

    @property
    def changes(self) -> int:
        """A number that grows with each change of a watched message in this process."""
        return watch_count.value

    def is_kept_by(self, message: Any) -> bool:
        """Tell whether the message is the same as when the watch was made."""
        values: dict[str, Any] = message.__dict__
        parts = (message, values["blocks"], values["additional_kwargs"], *values["blocks"])
        return all(getattr(part, "batonflow_watch", None) is self for part in parts)


def watch(message: Any) -> Watch | None:
    """Watch a message, and return its watch; None if a part of it cannot be watched."""
    values: dict[str, Any] = message.__dict__
    blocks, more = values["blocks"], values["additional_kwargs"]
    known = getattr(blocks, "batonflow_watch", None)
    if known is not None and known.is_kept_by(message):
        return known  # another reader watches it already
    if not all(isinstance(block, BaseContentBlock) for block in blocks):
        return None
    if type(more) is dict:
        values["additional_kwargs"] = more = WatchedDict(cast("dict[str, Any]", more))
    elif type(more) is KwargsWithCalls:
        values["additional_kwargs"] = more = more.copy_as(WatchedCalls)
    elif not isinstance(more, WatchedDict | WatchedCalls):
        return None
    if not isinstance(blocks, WatchedList):
        values["blocks"] = blocks = WatchedList(blocks)
    made = Watch()
    for part in (message, *blocks):
        Watchable.put_watch(part, made)
    blocks.batonflow_watch = more.batonflow_watch = made
    return made
