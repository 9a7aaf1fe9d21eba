"""Requests of retrieval to models. In a step of a query engine, each answer is recorded and not asked for again."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from batonflow.llms import LLM, Settings
from batonflow.llms._bridge import iterate_in_thread
from batonflow.llms.base import is_same_method
from batonflow.llms.errors import LLMConfigurationError
from batonflow.llms.messages import Model, TokenAsyncGen
from batonflow.llms.prompts import BasePromptTemplate, PromptMixin
from batonflow.llms.settings import llm_from
from batonflow.threads import in_thread

__all__ = [
    "Once",
    "WithPrompt",
    "all_of",
    "given_llm",
    "predict",
    "recording_requests",
    "required_llm",
    "stream",
    "structured",
]

Once = Callable[[str, Callable[[], Awaitable[Any]]], Awaitable[Any]]

T = TypeVar("T")

_once: ContextVar[tuple[Once, asyncio.AbstractEventLoop] | None] = ContextVar(
    "batonflow_recorded_requests", default=None
)
_PREDICT, _APREDICT, _STREAM, _ASTREAM = LLM.predict, LLM.apredict, LLM.stream, LLM.astream


class WithPrompt(PromptMixin):
    """An object with a prompt ``_prompt`` of the name ``_prompt_name``, or without one."""

    _prompt_name: str = ""
    _prompt: BasePromptTemplate

    def _get_prompts(self) -> dict[str, BasePromptTemplate]:
        return {self._prompt_name: self._prompt} if self._prompt_name else {}

    def _update_prompts(self, prompts_dict: dict[str, BasePromptTemplate]) -> None:
        if self._prompt_name:
            self._prompt = prompts_dict.get(self._prompt_name, self._prompt)


@contextmanager
def recording_requests(once: Once) -> Generator[None]:
    """Send the requests of this event loop inside the block through ``once``, under keys made of their text."""
    token = _once.set((once, asyncio.get_running_loop()))
    try:
        yield
    finally:
        _once.reset(token)


def given_llm(llm: LLM | str | None) -> LLM | None:
    """Return the model that is given, or named, or the default of ``Settings``."""
    return llm_from(llm) if isinstance(llm, str) else llm or Settings.llm


def required_llm(llm: LLM | None, owner: object) -> LLM:
    """Return the model of an object.

    Raises:
        LLMConfigurationError: It has no model.
    """
    if llm is None:
        raise LLMConfigurationError(f"{type(owner).__name__} has no model: pass llm=, or set Settings.llm before")
    return llm


async def all_of(requests: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Send requests at once and return their answers in order; a failure cancels the others."""
    tasks = [asyncio.ensure_future(one) for one in requests]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def predict(llm: LLM, prompt: BasePromptTemplate, /, **values: Any) -> str:
    """Fill in a prompt, send it and return the answer."""

    async def send() -> str:
        if is_same_method(llm.apredict, _APREDICT) and not is_same_method(llm.predict, _PREDICT):
            return await in_thread(llm.predict, prompt, **values)  # only this one is overridden
        return await llm.apredict(prompt, **values)

    return await _recorded(_key(llm, "text", prompt, values), send)


async def structured(llm: LLM, cls: type[Model], prompt: BasePromptTemplate, /, **values: Any) -> Model:
    """Fill in a prompt, send it and return the answer as an instance of a pydantic model."""

    async def send() -> dict[str, Any]:
        answer = await llm.astructured_predict(cls, prompt, **values)
        return answer.model_dump(mode="json")

    return cls.model_validate(await _recorded(_key(llm, cls.__qualname__, prompt, values), send))


async def stream(llm: LLM, prompt: BasePromptTemplate, /, **values: Any) -> TokenAsyncGen:
    """Fill in a prompt, send it and return the pieces of the answer; they are not recorded here."""
    if is_same_method(llm.astream, _ASTREAM) and not is_same_method(llm.stream, _STREAM):
        return iterate_in_thread(llm.stream(prompt, **values))
    return await llm.astream(prompt, **values)


async def _recorded(key: str, send: Callable[[], Awaitable[Any]]) -> Any:
    once, loop = _once.get() or (None, None)
    return await (send() if once is None or loop is not asyncio.get_running_loop() else once(key, send))


def _key(llm: LLM, kind: str, prompt: BasePromptTemplate, values: dict[str, Any]) -> str:
    text = f"{llm.class_name()} {llm.metadata.model_name} {kind}\n{prompt.format(**values)}"
    return f"request {hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()[:24]}"
