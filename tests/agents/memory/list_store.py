"""A chat store as users write one: the abstract methods and nothing else."""

from batonflow.agents.memory import BaseChatStore
from batonflow.llms import ChatMessage

__all__ = ["ListStore"]


class ListStore(BaseChatStore):
    lists: dict[str, list[ChatMessage]] = {}

    def set_messages(self, key: str, messages: list[ChatMessage]) -> None:
        self.lists[key] = list(messages)

    def get_messages(self, key: str) -> list[ChatMessage]:
        return list(self.lists.get(key, []))

    def add_message(self, key: str, message: ChatMessage) -> None:
        self.lists.setdefault(key, []).append(message)

    def delete_messages(self, key: str) -> list[ChatMessage] | None:
        return self.lists.pop(key, None)

    def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        messages = self.lists.get(key, [])
        return messages.pop(idx) if 0 <= idx < len(messages) else None

    def delete_last_message(self, key: str) -> ChatMessage | None:
        return self.delete_message(key, len(self.lists.get(key, [])) - 1)

    def get_keys(self) -> list[str]:
        return list(self.lists)
