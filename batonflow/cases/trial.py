"""Trials: a stored run again from its input, with another model or other parameters."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from batonflow.cases.case import CaseError, case_of_run
from batonflow.cases.replaying import Done, Rules, run_case
from batonflow.durable.comparison import RunComparison, compare_runs
from batonflow.durable.store_protocol import RunStore
from batonflow.llms import LLM, ChatMessage, MessageRole, llm_from
from batonflow.llms.errors import LLMConfigurationError
from batonflow.llms.stream import ChatRequest, Finish, StreamEvent
from batonflow.llms.usage import with_cost
from batonflow.workflow_core.workflow import Workflow

__all__ = ["Trial", "try_run"]


@dataclass(frozen=True)
class Trial:
    """A trial of a run.

    Attributes:
        run_id: The new run.
        comparison: The first run and the new one, side by side.
        error: The error of the new run, or None.
    """

    run_id: str
    comparison: RunComparison
    error: BaseException | None = None


async def try_run(
    store: RunStore,
    run_id: str,
    workflow: Workflow[Any],
    *,
    llm: LLM | str | None = None,
    system: str | None = None,
    temperature: float | None = None,
    new_id: str | None = None,
    effects: bool = False,
    **options: Any,
) -> Trial:
    """Run a stored run again from its input, with changes, and compare the two runs.

    The new run is in the same store. Tool calls and effects of the first run give their recorded results, if the new
    run makes them with the same arguments. Approvals of the first run hold for the same calls. Calls that need a new
    approval are denied, and new effects fail.

    Args:
        store: The store.
        run_id: The run.
        workflow: The workflow, agent or team of the run.
        llm: The model that answers all requests, or its name; by default each agent's own model.
        system: A text in the place of the first system message of each request.
        temperature: The temperature of all requests.
        new_id: The id of the new run; generated when left out.
        effects: Whether functions of ``ctx.effect`` run that the first run has not.
        options: Further options of ``run``, such as ``deps``.

    Raises:
        StoreError: The store has no such run.
        CaseError: The run has no input to start from, or the new id is in use.
        LLMConfigurationError: The name of the model is not known, or its key is missing.

    Example:
        >>> trial = await try_run(store, "tides-1", agent, llm="anthropic:claude-sonnet-5")
        >>> trial.comparison.right.cost
    """
    if new_id is not None and await store.info(new_id) is not None:
        raise CaseError(f"the store has a run {new_id!r} already: give the trial another id, or leave the id out")
    case = await case_of_run(store, run_id, needs_result=False)
    model = llm_from(llm) if isinstance(llm, str) else llm
    source, rules = _Changed(model, system, temperature), Rules(effects=effects, strict=False)
    try:
        done: Done = await run_case(run_id, case.data, workflow, rules, store, new_id, options, source)
    finally:
        if model is not None and model is not llm:
            await model.aclose()
    if await store.info(done.run_id) is None:  # the run could not begin
        done.value()
    return Trial(done.run_id, await compare_runs(store, run_id, done.run_id), done.error)


class _Changed:
    """Sends each request with changes, to another model if there is one."""

    needs_keys = True

    def __init__(self, llm: LLM | None, system: str | None, temperature: float | None) -> None:
        self._llm, self._system, self._temperature = llm, system, temperature

    def __call__(
        self, llm: Any, request: ChatRequest, events: AsyncGenerator[StreamEvent, None]
    ) -> tuple[Any, ChatRequest, AsyncGenerator[StreamEvent, None]]:
        """Return the model that answers, the changed request, and the answer."""
        changed: dict[str, Any] = {}
        if self._system is not None:
            changed["messages"] = _with_system(list(request.messages), self._system)
        if self._temperature is not None:
            changed["options"] = {**request.options, "temperature": self._temperature}
        model: Any = self._llm or llm
        if request.output_schema is not None and not model.native_output_schema:
            raise LLMConfigurationError(
                f"{model.metadata.model_name} does not enforce a JSON schema, as this request needs: try another model"
            )
        sent = request.model_copy(update=changed) if changed else request
        if sent is request and model is llm:
            return llm, request, events
        return model, sent, _priced(model._stream(sent), model)


def _with_system(messages: list[ChatMessage], text: str) -> list[ChatMessage]:
    system = ChatMessage(role=MessageRole.SYSTEM, content=text)
    has_one = bool(messages) and messages[0].role == MessageRole.SYSTEM
    return [system, *(messages[1:] if has_one else messages)]


async def _priced(events: AsyncGenerator[StreamEvent, None], llm: Any) -> AsyncGenerator[StreamEvent, None]:
    """Add the cost at the price of the answering model, which the program's own model does not know."""
    async with aclosing(events):
        async for event in events:
            if isinstance(event, Finish) and event.usage is not None:
                event.usage = with_cost(event.usage, llm.cost_of)
            yield event
