"""The data of a turn, and the conversation that turns make together."""

from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, cast

from batonflow.durable.attempt_record import as_json
from batonflow.durable.codec import Codec
from batonflow.durable.session_protocol import StoredTurn
from batonflow.llms import ChatMessage, TextBlock
from batonflow.values.serializers import read_json

__all__ = ["Conversation", "PlainObjects", "TurnCodec", "TurnData", "TurnWriter", "added", "conversation_of", "newest"]

Messages = list[ChatMessage]


@dataclass(slots=True)
class TurnData:
    """The part of a conversation that one turn adds.

    Args:
        messages: The messages of the turn, with the user's message.
        kept: The number of earlier messages that stay; None for all of them.
        members: For agents of a team with a conversation of their own: the same two, by name.
        archived: The number of archived messages of the memory.
        agent: The agent of a team that acts next; empty if unchanged.
        state: The state in the form of the codec; None if unchanged.
        memory: The knowledge of the memory without its messages; None if unchanged.
        output: The output: ``text``, ``structured`` and ``blocked``.
        usage: The usage.
        error: The error of a failed turn.
    """

    messages: Messages = field(default_factory=Messages)
    kept: int | None = None
    members: dict[str, tuple[int | None, Messages]] = field(default_factory=dict[str, tuple[int | None, Messages]])
    archived: int = 0
    agent: str = ""
    state: Any = None
    memory: dict[str, Any] | None = None
    output: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None
    error: str = ""


@dataclass(slots=True)
class Conversation:
    """A session before a turn, or after the last one. It has the fields of ``TurnData`` and the number of turns."""

    messages: Messages = field(default_factory=Messages)
    members: dict[str, Messages] = field(default_factory=dict[str, Messages])
    archived: int = 0
    agent: str = ""
    state: Any = None
    memory: dict[str, Any] | None = None
    turns: int = 0

    def add(self, turn: TurnData) -> None:
        """Add a turn."""
        self.turns += 1
        self.messages = [*self.messages[: turn.kept], *turn.messages]
        for name, (kept, messages) in turn.members.items():
            self.members[name] = [*self.members.get(name, [])[:kept], *messages]
        self.archived, self.agent = turn.archived, turn.agent or self.agent
        self.state = self.state if turn.state is None else turn.state
        self.memory = self.memory if turn.memory is None else turn.memory


def conversation_of(turns: Iterable[TurnData]) -> Conversation:
    """Return the conversation of turns."""
    conversation = Conversation()
    for turn in turns:
        conversation.add(turn)
    return conversation


def added(before: Messages, now: Messages) -> tuple[int | None, Messages]:
    """Return how many earlier messages stay, None for all, and the messages after them."""
    same = 0
    for one, other in zip(before, now, strict=False):
        if one is not other and one != other:
            break
        same += 1
    return (None if same == len(before) else same), now[same:]


class TurnCodec:
    """Writes turns as JSON. A message that is a plain text takes few bytes more than its text.

    Args:
        codec: The codec of the agent's runs.
    """

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def asked(self, message: ChatMessage | None) -> bytes:
        """Return the user's message as data."""
        return b"" if message is None else as_json(self._message(message))

    def read_asked(self, stored: StoredTurn) -> ChatMessage | None:
        """Return the user's message of a stored turn."""
        return self._read_message(read_json(stored.asked)) if stored.asked else None

    def _message(self, message: ChatMessage) -> Any:
        blocks = message.blocks
        if type(message) is ChatMessage and not message.additional_kwargs and len(blocks) == 1:
            block = blocks[0]
            if type(block) is TextBlock and set(vars(block)) <= {"block_type", "text"}:
                return [message.role.value, block.text]
        return {"v": self._codec.value(message)}

    def _read_message(self, data: Any) -> ChatMessage:
        if isinstance(data, dict):
            return self._codec.read(cast("dict[str, Any]", data)["v"])
        role, text = cast("list[str]", data)
        return ChatMessage([TextBlock(text=text)], role=role)

    def state(self, value: Any) -> Any:
        """Return a state as data."""
        return self._codec.value(value)

    def read_state(self, data: Any) -> Any:
        """Return the state for data."""
        return self._codec.read(data)

    def write(self, turn: TurnData, asked: ChatMessage | None) -> bytes:
        """Return a turn as data, without the user's message, which is there already."""
        messages = turn.messages
        begins = bool(messages) and asked is not None and messages[0] == asked
        data: dict[str, Any] = {
            "asked": begins,
            "messages": [self._message(one) for one in (messages[1:] if begins else messages)],
            "members": {
                name: [kept, [self._message(one) for one in added]] for name, (kept, added) in turn.members.items()
            },
            "archived": turn.archived,
            "agent": turn.agent,
            "state": turn.state,
            "memory": turn.memory,
            "output": turn.output,
            "usage": turn.usage,
            "error": turn.error,
        }
        data = {name: value for name, value in data.items() if value not in (None, False, "", 0, [], {})}
        return as_json(data if turn.kept is None else {**data, "kept": turn.kept})

    def read(self, stored: StoredTurn) -> TurnData:
        """Return the data of a stored turn; of one that ended without data, its user's message."""
        asked = self.read_asked(stored)
        if not stored.body:
            return TurnData([] if asked is None else [asked])
        data: dict[str, Any] = read_json(stored.body)
        messages = [self._read_message(one) for one in data.get("messages", ())]
        return TurnData(
            messages=[asked, *messages] if data.get("asked") and asked is not None else messages,
            kept=data.get("kept"),
            members={
                name: (kept, [self._read_message(one) for one in added])
                for name, (kept, added) in data.get("members", {}).items()
            },
            archived=data.get("archived", 0),
            agent=data.get("agent", ""),
            state=data.get("state"),
            memory=data.get("memory"),
            output=data.get("output"),
            usage=data.get("usage"),
            error=data.get("error", ""),
        )


class PlainObjects:
    """Keeps turns as the objects that they are, for sessions in this process."""

    def asked(self, message: ChatMessage | None) -> bytes:
        """Return the user's message."""
        return cast("bytes", message)

    def read_asked(self, stored: StoredTurn) -> ChatMessage | None:
        """Return the user's message of a turn."""
        return cast("ChatMessage | None", stored.asked) or None

    def state(self, value: Any) -> Any:
        """Return a copy of a state."""
        return [_copied(value)]

    def read_state(self, data: Any) -> Any:
        """Return a copy of a kept state."""
        return _copied(data[0])

    def write(self, turn: TurnData, asked: ChatMessage | None) -> bytes:  # noqa: ARG002 - a part of the protocol
        """Return a turn."""
        return cast("bytes", turn)

    def read(self, stored: StoredTurn) -> TurnData:
        """Return the data of a turn."""
        body = cast("Any", stored.body)
        asked = self.read_asked(stored)
        return body if isinstance(body, TurnData) else TurnData([] if asked is None else [asked])


TurnWriter = TurnCodec | PlainObjects


def _copied(value: Any) -> Any:
    """Return a copy of a state; objects that cannot be copied stay the same."""
    try:
        return deepcopy(value)
    except Exception:  # noqa: BLE001 - objects of the program raise any exception
        return dict(cast("dict[str, Any]", value)) if isinstance(value, dict) else value


def newest(turns: Sequence[TurnData], last: int) -> Messages | None:
    """Return the last messages of the newest turns, given newest first; None if these turns are not enough."""
    found: Messages = []
    for turn in turns:
        found = [*turn.messages, *found]
        if len(found) >= last:
            return found[-last:]
        if turn.kept is not None:
            return None
    return None
