"""What an agent remembers of a conversation."""

from batonflow.agents.memory.base import BaseMemory
from batonflow.agents.memory.buffer import ChatMemoryBuffer

__all__ = ["BaseMemory", "ChatMemoryBuffer"]
