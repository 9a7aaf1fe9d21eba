"""The steps of reasoning in words: an action, what came of it, the answer."""

from abc import abstractmethod
from typing import Any

from pydantic import BaseModel

__all__ = ["ActionReasoningStep", "BaseReasoningStep", "ObservationReasoningStep", "ResponseReasoningStep"]


class BaseReasoningStep(BaseModel):
    """One step."""

    @abstractmethod
    def get_content(self) -> str:
        """The step as the model is shown it."""

    @property
    @abstractmethod
    def is_done(self) -> bool:
        """Whether this is the last step."""


class ActionReasoningStep(BaseReasoningStep):
    """The model wants a tool called.

    Args:
        thought: Why.
        action: The tool's name.
        action_input: Its arguments.

    Example:
        >>> print(ActionReasoningStep(thought="I add.", action="add", action_input={"a": 1}).get_content())
    """

    thought: str
    action: str
    action_input: dict[str, Any]

    def get_content(self) -> str:
        """Thought, action and input, a line each."""
        return f"Thought: {self.thought}\nAction: {self.action}\nAction Input: {self.action_input}"

    @property
    def is_done(self) -> bool:
        """Never: the tool's output follows."""
        return False


class ObservationReasoningStep(BaseReasoningStep):
    """What a tool gave back.

    Args:
        observation: Its output.
        return_direct: Whether that is the answer.
    """

    observation: str
    return_direct: bool = False

    def get_content(self) -> str:
        """The observation."""
        return f"Observation: {self.observation}"

    @property
    def is_done(self) -> bool:
        """Whether the output is the answer."""
        return self.return_direct


class ResponseReasoningStep(BaseReasoningStep):
    """The model answers.

    Args:
        thought: Why it can.
        response: The answer.
        is_streaming: Whether this is the beginning of an answer that is still being written.
    """

    thought: str
    response: str
    is_streaming: bool = False

    def get_content(self) -> str:
        """Thought and answer."""
        if self.is_streaming:
            return f"Thought: {self.thought}\nAnswer (Starts With): {self.response} ..."
        return f"Thought: {self.thought}\nAnswer: {self.response}"

    @property
    def is_done(self) -> bool:
        """Always."""
        return True
