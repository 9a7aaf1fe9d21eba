"""Where the modules of programs written for LlamaIndex are in batonflow, and how a program is turned over."""

import re

__all__ = ["TABLE", "translate"]

TABLE: dict[str, str] = {
    "workflows": "batonflow.workflow_core",
    "llama_index.core.workflow": "batonflow.workflow_core",
    "workflows.server": "batonflow.workflow_core.server",
    "llama_index.utils.workflow": "batonflow.workflow_core.draw",
    "llama_index.core.agent.workflow": "batonflow.agents",
    "llama_index.core.agent": "batonflow.agents",
    "llama_index.core.tools": "batonflow.tools",
    "llama_index.core.llms": "batonflow.llms",
    "llama_index.core.base.llms.types": "batonflow.llms",
    "llama_index.llms.openai": "batonflow.llms",
    "llama_index.llms.anthropic": "batonflow.llms",
    "llama_index.llms.deepseek": "batonflow.llms",
    "llama_index.core.memory": "batonflow.agents.memory",
    "llama_index.core.storage.chat_store": "batonflow.agents.memory",
    "llama_index.core.prompts": "batonflow.llms.prompts",
    "llama_index.core.instrumentation": "batonflow.workflow_core.instrumentation",
}
"""Module prefix written for LlamaIndex -> module prefix here."""

_NAMES = "|".join(re.escape(name) for name in sorted(TABLE, key=len, reverse=True))
_IMPORT = re.compile(
    rf"^(?P<before>[ \t]*(?:from|import)[ \t]+)(?P<name>{_NAMES})(?P<after>(?=[.\s,])|$)", re.MULTILINE
)


def translate(source: str) -> str:
    """Return the program with the modules of its import lines exchanged, the longest name first; nothing else changes.

    Example:
        >>> translate("from workflows.events import Event")
        'from batonflow.workflow_core.events import Event'
    """
    return _IMPORT.sub(lambda found: found["before"] + TABLE[found["name"]], source)
