"""Handoffs between the agents of a team: the tool, its rules, and the task."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Literal

from pydantic import BaseModel
from typing_extensions import override

from batonflow.agents.members import HANDOFF_TOOL, Member
from batonflow.agents.prompts import HANDOFF_NOT_PERMITTED, HANDOFF_TOO_OFTEN, HANDOFF_UNKNOWN
from batonflow.llms.blocks import sendable
from batonflow.llms.prompts.base import fill
from batonflow.tools import AsyncBaseTool, ToolMetadata, ToolOutput
from batonflow.workflow_core import Context

__all__ = ["Carried", "HandoffTool", "meant", "refusal", "targets"]

Carried = Literal["full", "summary", "own"]
"""The next agent's knowledge: the conversation, a summary, or only the task and its own messages."""


class HandoffArguments(BaseModel):
    """The arguments of a handoff; one class for all tools, because creating a class takes a millisecond."""

    to_agent: str
    reason: str


class HandoffMetadata(ToolMetadata):
    """The description of a handoff tool for models."""

    @override
    def get_parameters_dict(self) -> dict[str, Any]:
        # The schema of the class as a constant, because computing it takes as long as ten handoffs.
        return {
            "properties": {
                "to_agent": {"title": "To Agent", "type": "string"},
                "reason": {"title": "Reason", "type": "string"},
            },
            "required": ["to_agent", "reason"],
            "type": "object",
        }


def targets(agent: Member, names: Sequence[str]) -> list[str]:
    """Return the agents that ``agent`` may hand over to: by default all others of the team."""
    if agent.can_handoff_to is None:
        return [name for name in names if name != agent.name]
    return [name for name in agent.can_handoff_to if name in names and name != agent.name]


def refusal(agent: Member, to_agent: str, names: Sequence[str]) -> str | None:
    """Return the reason against a handoff from ``agent`` to ``to_agent``, None without one."""
    allowed = targets(agent, names)
    if to_agent in allowed:
        return None
    words = HANDOFF_NOT_PERMITTED if to_agent in names else HANDOFF_UNKNOWN
    return words.format(from_agent=agent.name, to_agent=to_agent, valid=", ".join(allowed) or "none")


class HandoffTool(AsyncBaseTool):
    """The tool with which an agent hands over.

    Args:
        agent: The agent that may call it.
        agents: The team.
        description: The text for models; has ``{agent_info}``.
        max_handoffs: The number of handoffs in a run; None for no limit.
    """

    # Not a FunctionTool, because inspecting a function for each agent takes time.

    def __init__(self, agent: Member, agents: Mapping[str, Member], description: str, max_handoffs: int | None) -> None:
        self._agent = agent
        self._names = list(agents)
        self._max_handoffs = max_handoffs
        info = str({name: agents[name].description for name in targets(agent, self._names)})
        self._metadata = HandoffMetadata(
            name=HANDOFF_TOOL,
            description=fill(description, {"agent_info": info}),
            fn_schema=HandoffArguments,
            return_direct=True,
        )

    @property
    def metadata(self) -> ToolMetadata:
        """The description for models."""
        return self._metadata

    def call(self, input: Any = None) -> ToolOutput:  # noqa: A002, ARG002 - the contract's signature
        """Raise an error, because handoffs need a run.

        Raises:
            RuntimeError: Always.
        """
        raise RuntimeError("the handoff tool works inside a run of its team only")

    async def acall(self, to_agent: str, reason: str) -> ToolOutput:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Choose the agent that goes on after the results of this turn."""
        store = Context.get_step_context().store
        words = refusal(self._agent, to_agent, self._names)
        done: int = await store.get("num_handoffs", default=0)
        if words is None and self._max_handoffs is not None and done >= self._max_handoffs:
            words = HANDOFF_TOO_OFTEN.format(limit=self._max_handoffs)
        given = {"to_agent": to_agent, "reason": reason}
        if words is not None:
            return ToolOutput(tool_name=HANDOFF_TOOL, content=words, raw_input=given, raw_output=words, is_error=True)
        await store.set("num_handoffs", done + 1)
        await store.set("next_agent", to_agent)
        words = sendable(fill(await store.get("handoff_output_prompt"), given))
        return ToolOutput.of_text(HANDOFF_TOOL, words, given, words)


# A sentence that announces a handoff: in the first person, or without a subject.
_SENTENCE = re.compile(r"[^.!?\n]+[.!?]?")
_SPEAKER = re.compile(r"\b(?:i|we|let me|let us|let's)\b", re.IGNORECASE)
_VERBS = "hand|pass|transfer|forward|delegat|rout|redirect|connect"
_VERB = re.compile(rf"\b(?:{_VERBS})[a-z]*\b", re.IGNORECASE)
_BEGINS_WITH_VERB = re.compile(rf"\W*(?:{_VERBS})[a-z]*ing\b", re.IGNORECASE)
_NOT_SAID_TO_BE = re.compile(
    r"\b(?:not|cannot|never|no need|without|can|could|would|should|shall|may|might|if|unless|until|before|when|once)\b"
    r"|n't\b",
    re.IGNORECASE,
)


def meant(text: str, names: Sequence[str]) -> str | None:
    """Return the agent to which a text announces a handoff; None without an announcement.

    Args:
        text: The text of an agent.
        names: The agents it may hand over to.
    """
    for sentence in _SENTENCE.findall(text):
        begin = _announced(sentence)
        if begin is None:
            continue
        found = [(match.start(), -len(name), name) for name in names if (match := _to(name).search(sentence, begin))]
        if found:
            at, _, name = min(found)
            if not _NOT_SAID_TO_BE.search(sentence, 0, at):
                return name
    return None


def _announced(sentence: str) -> int | None:
    """Return the place in a sentence after its verb of handing over, or None without such a verb."""
    if sentence.endswith("?"):
        return None
    found = _BEGINS_WITH_VERB.match(sentence)
    speaker = _SPEAKER.search(sentence)
    if found is None and speaker is not None:
        found = _VERB.search(sentence, speaker.end())
    return None if found is None else found.end()


@cache
def _to(name: str) -> re.Pattern[str]:
    """Return a pattern for ``to the name``, with or without markup, and with underscores or spaces."""
    words = r"[\s_-]+".join(re.escape(word) for word in re.split(r"[\s_-]+", name) if word)
    return re.compile(
        rf"\b(?:to|with)\s+(?:(?:the|our|my|agent)\s+)*[^\w\s]*{words}(?![\w-])(?!\s+of\b)", re.IGNORECASE
    )
