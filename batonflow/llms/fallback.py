"""FallbackLLM: a list of models; when one fails, the next takes over."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from pydantic import Field, SerializeAsAny

from batonflow.instrumentation.logs import logger_named
from batonflow.llms.answer import incomplete
from batonflow.llms.base import LLM
from batonflow.llms.errors import LLMConfigurationError, LLMError
from batonflow.llms.function_calling import FunctionCallingLLM, label
from batonflow.llms.messages import LLMMetadata
from batonflow.llms.stream import ChatRequest, Finish, StreamEvent
from batonflow.llms.usage import Usage, with_cost

__all__ = ["FallbackLLM"]

_logger = logger_named("batonflow.llm")


def _passing(error: LLMError) -> bool:
    return error.retryable


class FallbackLLM(FunctionCallingLLM):
    """Send a request to the first of several models, and to the next one if the vendor fails.

    The default is to switch after connection errors, rate limits, server errors and incomplete responses, and only
    before any part of the response was yielded. ``response.model``, ``response.vendor`` and
    ``response.additional_kwargs["answered_by"]`` name the model that answered; ``["switched_from"]`` has the errors of
    the others.

    Give the members few retries of their own (``max_retries=0`` or 1), because each is retried before the switch.

    Args:
        llms: The models, best first.
        switch_on: Returns whether to switch after an error; the default is ``error.retryable``.

    Raises:
            LLMConfigurationError: ``llms`` is empty.
            LLMError: The error of the last model, with the errors of the others as notes.

    Example:
        >>> llm = FallbackLLM([OpenAI("gpt-5.6", max_retries=0), Anthropic("claude-sonnet-5")])
        >>> print(llm.complete("Say hello."))
    """

    llms: list[SerializeAsAny[LLM]]
    switch_on: Callable[[LLMError], bool] = Field(default=_passing, exclude=True, repr=False)

    def __init__(self, llms: Sequence[LLM], **data: Any) -> None:
        if not llms:
            raise LLMConfigurationError("FallbackLLM needs at least one model")
        data["llms"] = list(llms)
        super().__init__(**data)

    @property
    def metadata(self) -> LLMMetadata:
        """The metadata of the first model, with the limits that hold for all models."""
        known = [llm.metadata for llm in self.llms]
        return known[0].model_copy(
            update={
                "context_window": min(one.context_window for one in known),
                "num_output": min(one.num_output for one in known),
                "is_function_calling_model": all(one.is_function_calling_model for one in known),
            }
        )

    @property
    def native_output_schema(self) -> bool:
        """Return whether all models enforce a JSON schema."""
        return all(llm.native_output_schema for llm in self.llms)

    def cost_of(self, usage: Usage) -> float | None:
        """Return the cost of a request at the dearest model. None when the price of a model is unknown.

        The cost of a response is that of the model that answered.
        """
        if self.price is not None:
            return super().cost_of(usage)
        costs = [llm.cost_of(usage) for llm in self.llms]
        known = [cost for cost in costs if cost is not None]
        return max(known) if len(known) == len(costs) else None

    async def aclose(self) -> None:
        """Close all models."""
        for llm in self.llms:
            await llm.aclose()

    async def _stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent, None]:
        failures: list[LLMError] = []
        for left, llm in zip(range(len(self.llms) - 1, -1, -1), self.llms, strict=True):
            shown = False
            try:
                async with aclosing(llm._stream(request)) as events:
                    async for event in events:
                        if isinstance(event, Finish):
                            yield self._signed(event, llm, failures)
                            return
                        shown = True
                        yield event
                raise incomplete(shown, llm.class_name(), llm.metadata.model_name)
            except LLMError as err:
                err.shown = shown
                if shown or not left or not self.switch_on(err):
                    for failure in failures:
                        err.add_note(f"asked before: {failure}")
                    raise
                _logger.warning("%s failed, asking the next model: %s", label(llm), err)
                failures.append(err)

    def _signed(self, finish: Finish, llm: LLM, failures: Sequence[LLMError]) -> Finish:
        """Add the answering model and the cost to the terminal mark. The price of this model comes first."""
        extras: dict[str, Any] = {**finish.additional_kwargs, "answered_by": label(llm)}
        if failures:
            extras["switched_from"] = [str(failure) for failure in failures]
        usage = finish.usage
        if usage is not None:
            usage = with_cost(usage, llm.cost_of)
            usage = usage if self.price is None else usage.model_copy(update={"cost": self.cost_of(usage)})
        return replace(finish, additional_kwargs=extras, usage=usage, model=finish.model or llm.metadata.model_name)
