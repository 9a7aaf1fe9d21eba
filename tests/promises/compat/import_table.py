"""Where the modules of programs written for LlamaIndex are in batonflow, and how a program is turned over."""

import re

from batonflow import retrieval

__all__ = ["SOME_NAMES", "TABLE", "translate"]

TABLE: dict[str, str] = {
    "workflows": "batonflow.workflow_core",
    "llama_index.core.workflow": "batonflow.workflow_core",
    "llama_index.core.workflow.context_serializers": "batonflow.workflow_core.context.serializers",
    "workflows.plugins.*": "batonflow.workflow_core.plugins",
    "workflows.server": "batonflow.workflow_core.server",
    "llama_index.utils.workflow": "batonflow.workflow_core.draw",
    "llama_index.core.workflow.drawing": "batonflow.workflow_core.draw",
    "llama_index.core.agent.*": "batonflow.agents",
    "llama_index.core.agent.workflow.workflow_events": "batonflow.agents.workflow_events",
    "llama_index.core.agent.workflow.prompts": "batonflow.agents.prompts",
    "llama_index.core.agent.react.formatter": "batonflow.llms.react_text",
    "llama_index.core.agent.react.output_parser": "batonflow.llms.react_text",
    "llama_index.core.agent.react.types": "batonflow.llms.react_steps",
    "llama_index.core.agent.utils": "batonflow.llms.structured_llm",
    "llama_index.core.tools.*": "batonflow.tools",
    "llama_index.core.program.function_program": "batonflow.tools",
    "llama_index.core.llms.*": "batonflow.llms",
    "llama_index.core.base.llms.*": "batonflow.llms",
    "llama_index.core.settings": "batonflow.llms",
    "llama_index.core.llms.callbacks": "batonflow.llms.callbacks",
    "llama_index.llms.openai.*": "batonflow.llms",
    "llama_index.llms.anthropic.*": "batonflow.llms",
    "llama_index.llms.deepseek.*": "batonflow.llms",
    "llama_index.core.memory.*": "batonflow.agents.memory",
    "llama_index.core.storage.chat_store.*": "batonflow.agents.memory",
    "llama_index.core.prompts.*": "batonflow.llms.prompts",
    "llama_index.core.prompts.mixin": "batonflow.llms.prompts.mixin",
    "llama_index.core.instrumentation": "batonflow.workflow_core.instrumentation",
    "llama_index_instrumentation": "batonflow.workflow_core.instrumentation",
    "llama_index.core.instrumentation.span.*": "batonflow.workflow_core.instrumentation.span",
    "llama_index_instrumentation.base": "batonflow.workflow_core.instrumentation.events.base",
    "llama_index_instrumentation.span.*": "batonflow.workflow_core.instrumentation.span",
    "llama_index.core.instrumentation.span_handlers.*": "batonflow.workflow_core.instrumentation.span_handlers",
    "llama_index_instrumentation.span_handlers.*": "batonflow.workflow_core.instrumentation.span_handlers",
    "llama_index.core.instrumentation.event_handlers.*": "batonflow.workflow_core.instrumentation.event_handlers",
    "llama_index_instrumentation.event_handlers.*": "batonflow.workflow_core.instrumentation.event_handlers",
    "llama_index.core.bridge.pydantic": "pydantic",
}
"""Module prefix written for LlamaIndex -> module prefix here; with ``.*`` every module below it is in the one here."""

_OF_RETRIEVAL = (
    "schema", "node_parser", "embeddings", "indices", "retrievers", "query_engine", "response_synthesizers",
    "postprocessor", "readers", "storage", "vector_stores",
    "selectors", "question_gen", "chat_engine", "data_structs", "objects", "response", "base.base_retriever",
    "base.base_query_engine", "base.base_selector", "base.embeddings", "base.response.schema", "base.response",
)  # fmt: skip
_RETRIEVAL = ("batonflow.retrieval", frozenset(retrieval.__all__))
SOME_NAMES: dict[str, list[tuple[str, frozenset[str]]]] = {
    "llama_index.core": [
        ("batonflow.llms", frozenset({"Settings", "PromptTemplate", "ChatPromptTemplate", "BasePromptTemplate"})),
        _RETRIEVAL,
    ],
    "llama_index.core.utils": [("batonflow.agents.memory", frozenset({"count_tokens"}))],
    "llama_index.core.types": [
        (
            "batonflow.llms.types",
            frozenset({"PydanticProgramMode", "Model", "TokenGen", "TokenAsyncGen", "ChatMessage", "MessageRole"}),
        )
    ],
    "llama_index.readers.file": [_RETRIEVAL],
    "llama_index.retrievers.bm25": [_RETRIEVAL],
    **{f"llama_index.core.{module}": [_RETRIEVAL] for module in _OF_RETRIEVAL},
}
"""Modules with some of their names here, mapped to the modules here and the names. Other names stay with LlamaIndex.

All modules below those of retrieval are in one module here.
"""

_NAMES = "|".join(re.escape(name.removesuffix(".*")) for name in sorted(TABLE, key=len, reverse=True))
_BELOW = r"(?P<below>(?:\.\w+)*)"
_IMPORT = re.compile(
    rf"^(?P<before>[ \t]*(?:from|import)[ \t]+)(?P<name>{_NAMES}){_BELOW}(?P<after>(?=[\s,;])|$)", re.MULTILINE
)
_SOME = re.compile(
    rf"^(?P<before>[ \t]*from[ \t]+)(?P<name>{'|'.join(map(re.escape, sorted(SOME_NAMES, key=len, reverse=True)))})"
    r"(?P<below>(?:\.\w+)*)"
    r"(?P<import>[ \t]+import[ \t]+)(?P<names>\([^)]*\)|[^\n;(]*)",
    re.MULTILINE,
)


def translate(source: str) -> str:
    """Return the program with the modules of its import lines exchanged, the longest name first; nothing else changes.

    Where only some names of a module are here, a line changes if it imports no others.

    Example:
        >>> translate("from workflows.events import Event")
        'from batonflow.workflow_core.events import Event'
    """
    return _SOME.sub(_some_names, _IMPORT.sub(_whole_module, source))


def _whole_module(found: re.Match[str]) -> str:
    name = found["name"]
    here = TABLE[f"{name}.*"] if f"{name}.*" in TABLE else TABLE[name] + found["below"]
    return found["before"] + here


def _some_names(found: re.Match[str]) -> str:
    targets = SOME_NAMES[found["name"]]
    if found["below"] and targets != [_RETRIEVAL]:
        return found[0]
    # Comments between parentheses name nothing.
    listed = re.sub(r"#.*", "", found["names"]).strip("() \t\r\n").split(",")
    names = {name.split()[0] for name in listed if name.strip()}
    here = next((here for here, known in targets if names <= known), None)
    return found[0] if here is None else f"{found['before']}{here}{found['import']}{found['names']}"
