"""The memories of sessions: made from a conversation before a turn, and read at its end."""

from typing import Any

from batonflow.agents.layers.memory_pattern import memory_like, pattern_of
from batonflow.agents.memory import BaseMemory, ChatMemoryBuffer
from batonflow.agents.memory.chat_store import SimpleChatStore
from batonflow.agents.sessions.turn_data import Conversation, Messages, TurnWriter
from batonflow.llms import ChatMessage
from batonflow.workflow_core.context.state_store import StateCell, new_state
from batonflow.workflow_core.events import DictState
from batonflow.workflow_core.run import Run

__all__ = ["fill", "messages_of"]


def fill(run: Run, agent: Any, session: str, before: Conversation, writer: TurnWriter) -> None:
    """Put a session into the state of a run before its beginning.

    Args:
        run: The run.
        agent: The agent or team.
        session: The name of the session.
        before: The session.
        writer: Reads the state.
    """
    team = agent.__batonflow_team__
    values: dict[str, Any] = {}
    if before.messages or before.memory is not None or pattern_of(agent) is not None:
        values["memory"] = _memory(agent, session, before)
    if before.state is not None:
        values["state"] = writer.read_state(before.state)
    if before.agent:
        values["current_agent_name"] = before.agent
    if before.members:
        shared = values.get("memory")
        values["memories"] = {
            name: _member_memory(shared, team.member(name), messages) for name, messages in before.members.items()
        }
    cell: StateCell = run.cell
    cell.state = new_state(cell.state_type)
    for name, value in values.items():
        if isinstance(cell.state, DictState):
            cell.state.to_dict()[name] = value
        else:
            setattr(cell.state, name, value)


def _memory(agent: Any, session: str, before: Conversation) -> BaseMemory:
    pattern = pattern_of(agent)
    if pattern is None:
        made: Any = ChatMemoryBuffer.from_defaults(llm=agent.__batonflow_team__.settings().llm)
    else:
        made = memory_like(pattern, before.memory, session)
    _put(made, before.messages, before.archived)
    return made


def _member_memory(shared: Any, agent: Any, messages: Messages) -> BaseMemory:
    made = shared.new_conversation() if isinstance(shared, BaseMemory) else None
    made = made or ChatMemoryBuffer.from_defaults(llm=agent.llm_or_none())
    _put(made, messages, 0)
    return made


def _key(memory: Any) -> str:
    return memory.session_id if hasattr(memory, "session_id") else memory.chat_store_key


def _put(memory: Any, messages: Messages, archived: int) -> None:
    store = getattr(memory, "chat_store", None)
    if type(store) is SimpleChatStore:
        store.store[_key(memory)] = messages[archived:]
        if archived:
            store.archived[_key(memory)] = messages[:archived]
    else:
        memory.set(list(messages))


def messages_of(memory: Any) -> tuple[list[ChatMessage], int]:
    """Return all messages of a memory, and how many of these are archived."""
    store = getattr(memory, "chat_store", None)
    if type(store) is SimpleChatStore:
        key = _key(memory)
        archived = store.archived.get(key, [])
        return [*archived, *store.store.get(key, [])], len(archived)
    return (list(memory.get_all()), 0) if isinstance(memory, BaseMemory) else ([], 0)
