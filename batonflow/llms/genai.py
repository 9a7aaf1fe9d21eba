"""Attribute names of spans about agents, models and tools: OpenTelemetry's conventions for generative AI.

The package ``opentelemetry-semantic-conventions`` no longer has these conventions, and they still change. The names
are therefore defined here, and exporters need no table of their own.
"""

import os

__all__ = ["CAPTURE_CONTENT", "CONTENT", "captures_content", "unwant_content", "want_content"]

SCHEMA_URL = "https://opentelemetry.io/schemas/1.38.0"
"""The version of the conventions."""

OPERATION = "gen_ai.operation.name"
"""``chat``, ``execute_tool``, ``invoke_agent`` or ``invoke_workflow``."""

PROVIDER = "gen_ai.provider.name"
AGENT_NAME = "gen_ai.agent.name"
AGENT_DESCRIPTION = "gen_ai.agent.description"
WORKFLOW_NAME = "gen_ai.workflow.name"
TURN = "batonflow.agent.turn"
"""The number of the turn in a run, from 1."""

CONVERSATION_ID = "gen_ai.conversation.id"
"""The run's id."""

REQUEST_MODEL = "gen_ai.request.model"
REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
REQUEST_TEMPERATURE = "gen_ai.request.temperature"
REQUEST_TOP_P = "gen_ai.request.top_p"
REQUEST_TOP_K = "gen_ai.request.top_k"
REQUEST_SEED = "gen_ai.request.seed"
REQUEST_FREQUENCY_PENALTY = "gen_ai.request.frequency_penalty"
REQUEST_PRESENCE_PENALTY = "gen_ai.request.presence_penalty"

RESPONSE_MODEL = "gen_ai.response.model"
RESPONSE_ID = "gen_ai.response.id"
FINISH_REASONS = "gen_ai.response.finish_reasons"
TIME_TO_FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
"""Seconds."""

INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHED_TOKENS = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS = "gen_ai.usage.cache_creation.input_tokens"
REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens"

TOOL_NAME = "gen_ai.tool.name"
TOOL_TYPE = "gen_ai.tool.type"
TOOL_DESCRIPTION = "gen_ai.tool.description"
TOOL_CALL_ID = "gen_ai.tool.call.id"

ERROR_TYPE = "error.type"

INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
SYSTEM_INSTRUCTIONS = "gen_ai.system_instructions"
TOOL_DEFINITIONS = "gen_ai.tool.definitions"
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_RESULT = "gen_ai.tool.call.result"
"""These six attributes are content: they are only set on request, and without secrets."""

CAPTURE_CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""The environment variable that requests content with ``true``, as in OpenTelemetry's instrumentations."""


COST = "batonflow.cost"
"""The price of a request in US dollars, if known; the conventions have no name for it."""

CONTENT = frozenset({
    INPUT_MESSAGES, OUTPUT_MESSAGES, SYSTEM_INSTRUCTIONS, TOOL_DEFINITIONS, TOOL_ARGUMENTS, TOOL_RESULT,
})  # fmt: skip

_wanted: list[object] = []


def want_content(owner: object) -> None:
    """Record content in spans for ``owner`` until ``unwant_content``, without the environment variable."""
    _wanted.append(owner)


def unwant_content(owner: object) -> None:
    """End the request of ``owner`` for content."""
    _wanted[:] = [one for one in _wanted if one is not owner]


def captures_content() -> bool:
    """Return whether spans record content: on request of the environment or of a handler."""
    return bool(_wanted) or os.environ.get(CAPTURE_CONTENT, "").strip().lower() in {"true", "1"}
