"""Engines that divide a question: into sub-questions for tools, or into one step after the other."""

import json
import re
from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, Self

from pydantic import BaseModel, ValidationError

from batonflow.instrumentation.logs import logger_named
from batonflow.llms import LLM
from batonflow.llms._bridge import run_sync
from batonflow.llms.prompts import BasePromptTemplate, PromptMixin, PromptTemplate
from batonflow.nodes import BaseQueryEngine, NodeWithScore, QueryBundle, TextNode
from batonflow.retrieval.prompts import SUB_QUESTIONS
from batonflow.retrieval.query_runs import EngineWorkflow, QueryAsked, QueryPlanned, records_around, start_query
from batonflow.retrieval.requests import WithPrompt, all_of, given_llm, predict, recording_requests, required_llm
from batonflow.retrieval.synthesizers import AnyResponse, BaseSynthesizer, get_response_synthesizer
from batonflow.retrieval.transforms import StepDecomposeQueryTransform
from batonflow.tools import QueryEngineTool, ToolMetadata
from batonflow.workflow_core import Context, Event, StopEvent, Workflow, WorkflowHandler, step

__all__ = ["LLMQuestionGenerator", "MultiStepQueryEngine", "SubQuestion", "SubQuestionQueryEngine"]

logger = logger_named("batonflow.retrieval")

_FENCED = re.compile(r"```(?:json)?\s*(.*?)```", re.DOTALL)


class SubQuestion(BaseModel):
    """A question for one tool."""

    sub_question: str
    tool_name: str


class _Items(BaseModel):
    items: list[SubQuestion]


class LLMQuestionGenerator(WithPrompt):
    """Divides a question into sub-questions for tools, with a model.

    Args:
        llm: The model; by default that of ``Settings``.
        prompt: The prompt, with ``tools_str`` and ``query_str``.

    Raises:
        ValueError: The answer of the model is not JSON of sub-questions.
    """

    _prompt_name = "question_gen_prompt"

    def __init__(self, llm: LLM | str | None = None, prompt: BasePromptTemplate | None = None) -> None:
        self._llm, self._prompt = given_llm(llm), prompt or SUB_QUESTIONS

    @classmethod
    def from_defaults(cls, llm: LLM | str | None = None, prompt_template_str: str | None = None) -> Self:
        """Return a generator."""
        return cls(llm, None if prompt_template_str is None else PromptTemplate(prompt_template_str))

    def generate(self, tools: Sequence[ToolMetadata], query: QueryBundle) -> list[SubQuestion]:
        """Return the sub-questions of a question."""
        return run_sync(self.agenerate(tools, query))

    async def agenerate(self, tools: Sequence[ToolMetadata], query: QueryBundle) -> list[SubQuestion]:
        """Return the sub-questions of a question."""
        listed = json.dumps({one.get_name(): one.description for one in tools}, ensure_ascii=False, indent=1)
        llm = required_llm(self._llm, self)
        answer = await predict(llm, self._prompt, tools_str=listed, query_str=query.query_str)
        fenced = _FENCED.search(answer)
        try:
            data: Any = json.loads(fenced[1] if fenced else answer)
            return _Items.model_validate({"items": data} if isinstance(data, list) else data).items
        except (ValueError, ValidationError) as error:
            raise ValueError(f"the answer {answer!r} is not JSON of sub-questions") from error


class Answered(Event):
    """The answers to the parts of a question, in order.

    Attributes:
        query: The question.
        pairs: The parts with their answers.
        sources: The nodes of the answers.
    """

    query: QueryBundle
    pairs: list[tuple[str, str]]
    sources: list[NodeWithScore]


class _Combining(EngineWorkflow):
    """The last step of engines that divide a question."""

    @step
    async def combine(self, ctx: Context[Any], ev: Answered) -> StopEvent:
        """Make one answer of the answers to the parts."""
        with recording_requests(records_around.get() or ctx.once):
            return StopEvent(result=await self.engine.combined(ev))


class _DividingEngine(BaseQueryEngine, WithPrompt):
    """An engine that divides a question, and makes one answer of the answers to its parts."""

    _labels: tuple[str, str]
    workflow: Workflow[Any]

    def __init__(self, response_synthesizer: BaseSynthesizer | None, callback_manager: Any = None) -> None:
        super().__init__(callback_manager)
        self._synthesizer = response_synthesizer or get_response_synthesizer()

    def run(
        self, query: str | QueryBundle, *, run_id: str | None = None, store: str | PathLike[str] | Any = None
    ) -> WorkflowHandler[Any]:
        """Start a query and return its handler at once; see ``RetrieverQueryEngine.run``."""
        return start_query(self.workflow, query, run_id, store)

    async def combined(self, answered: Answered) -> AnyResponse:
        """Make one answer of the answers to the parts."""
        first, second = self._labels
        nodes = [
            NodeWithScore(node=TextNode(text=f"{first}: {question}\n{second}: {answer}"))
            for question, answer in answered.pairs
        ]
        response = await self._synthesizer.asynthesize(answered.query, nodes, answered.sources)
        response.metadata = {**(response.metadata or {}), "sub_qa": answered.pairs}
        return response

    async def _aquery(self, query_bundle: QueryBundle) -> AnyResponse:
        return await self.run(query_bundle)

    def _get_prompt_modules(self) -> dict[str, PromptMixin]:
        return {"response_synthesizer": self._synthesizer}


class Planned(Event):
    """The sub-questions of a question."""

    query: QueryBundle
    questions: list[SubQuestion]


class SubQuestionWorkflow(_Combining):
    """The workflow of a ``SubQuestionQueryEngine``."""

    @step
    async def plan(self, ctx: Context[Any], ev: QueryAsked) -> Planned:
        """Divide the question."""
        with recording_requests(records_around.get() or ctx.once):
            questions = await self.engine.questions_of(ev.query)
        ctx.write_event_to_stream(QueryPlanned(query=ev.query, plan=[one.sub_question for one in questions]))
        return Planned(query=ev.query, questions=questions)

    @step
    async def ask(self, ctx: Context[Any], ev: Planned) -> Answered:
        """Ask all sub-questions."""
        with recording_requests(records_around.get() or ctx.once):
            return await self.engine.answers_to(ev.query, ev.questions)


class SubQuestionQueryEngine(_DividingEngine):
    """Divides a question into sub-questions for tools, asks them, and joins the answers.

    A sub-question for an unknown tool, and one that fails, are logged and left out.

    Args:
        question_gen: Divides the question.
        response_synthesizer: Joins the answers.
        query_engine_tools: The tools.
        callback_manager: Accepted and kept; use instrumentation instead.
        verbose: Accepted and kept.
        use_async: Whether to ask all sub-questions at once.

    Example:
        >>> engine = SubQuestionQueryEngine.from_defaults(query_engine_tools=[sea_tool, bread_tool], llm=llm)
        >>> engine.query("Compare the sea and bread.").metadata["sub_qa"]
    """

    _labels = ("Sub question", "Response")

    def __init__(
        self,
        question_gen: Any,
        response_synthesizer: BaseSynthesizer | None,
        query_engine_tools: Sequence[QueryEngineTool],
        callback_manager: Any = None,
        verbose: bool = False,
        use_async: bool = False,
    ) -> None:
        super().__init__(response_synthesizer, callback_manager)
        self._question_gen, self._use_async, self.verbose = question_gen, use_async, verbose
        self._tools = {one.metadata.get_name(): one for one in query_engine_tools}
        self.workflow = SubQuestionWorkflow(self)

    @classmethod
    def from_defaults(
        cls,
        query_engine_tools: Sequence[QueryEngineTool],
        llm: LLM | str | None = None,
        question_gen: Any = None,
        response_synthesizer: BaseSynthesizer | None = None,
        verbose: bool = False,
        use_async: bool = True,
    ) -> Self:
        """Return an engine."""
        made = question_gen or LLMQuestionGenerator(llm)
        synthesizer = response_synthesizer or get_response_synthesizer(llm)
        return cls(made, synthesizer, query_engine_tools, verbose=verbose, use_async=use_async)

    async def questions_of(self, query: QueryBundle) -> list[SubQuestion]:
        """Return the sub-questions for tools that exist."""
        found = await self._question_gen.agenerate([one.metadata for one in self._tools.values()], query)
        for one in found:
            if one.tool_name not in self._tools:
                logger.warning("the sub-question %r is left out: there is no tool %r", one.sub_question, one.tool_name)
        return [one for one in found if one.tool_name in self._tools]

    async def answers_to(self, query: QueryBundle, questions: Sequence[SubQuestion]) -> Answered:
        """Ask sub-questions, at once or in order."""
        if self._use_async:
            answers = await all_of(self._answer(one) for one in questions)
        else:
            answers = [await self._answer(one) for one in questions]
        pairs: list[tuple[str, str]] = []
        sources: list[NodeWithScore] = []
        for question, answer in zip(questions, answers, strict=True):
            if answer is not None:
                pairs.append((question.sub_question, str(answer)))
                sources += answer.source_nodes
        return Answered(query=query, pairs=pairs, sources=sources)

    async def _answer(self, question: SubQuestion) -> Any:
        try:
            return await self._tools[question.tool_name].query_engine.aquery(question.sub_question)
        except ValueError as error:
            logger.warning("the sub-question %r has no answer: %s", question.sub_question, error)
            return None

    def _get_prompt_modules(self) -> dict[str, PromptMixin]:
        return {**super()._get_prompt_modules(), "question_gen": self._question_gen}


class Step(Event):
    """The answers so far."""

    query: QueryBundle
    pairs: list[tuple[str, str]]
    sources: list[NodeWithScore]


class MultiStepWorkflow(_Combining):
    """The workflow of a ``MultiStepQueryEngine``."""

    @step
    async def begin(self, ev: QueryAsked) -> Step:
        """Begin without answers."""
        return Step(query=ev.query, pairs=[], sources=[])

    @step
    async def ask_next(self, ctx: Context[Any], ev: Step) -> Step | Answered:
        """Ask the next simple question."""
        with recording_requests(records_around.get() or ctx.once):
            question = await self.engine.next_question(ev.query, ev.pairs)
            if question is None:
                return Answered(query=ev.query, pairs=ev.pairs, sources=ev.sources)
            ctx.write_event_to_stream(QueryPlanned(query=ev.query, plan=[question.query_str]))
            answer = await self.engine.query_engine.aquery(question)
        pairs = [*ev.pairs, (question.query_str, str(answer))]
        return Step(query=ev.query, pairs=pairs, sources=[*ev.sources, *answer.source_nodes])


class MultiStepQueryEngine(_DividingEngine):
    """Asks an engine one simple question after the other, and joins the answers. Each follows from those before.

    Args:
        query_engine: The engine.
        query_transform: Makes the next question; its answer ``None`` ends the questions.
        response_synthesizer: Joins the answers.
        num_steps: The largest number of questions; None for any number.
        early_stopping: Whether the transformation may end the questions.
        index_summary: The subject of the engine.
        stop_fn: Tells from ``{"query_bundle": ...}`` whether a question ends the questions.

    Example:
        >>> MultiStepQueryEngine(engine, StepDecomposeQueryTransform(llm), index_summary="the sea").query("Why tides?")
    """

    _labels = ("Question", "Answer")

    def __init__(
        self,
        query_engine: BaseQueryEngine,
        query_transform: StepDecomposeQueryTransform,
        response_synthesizer: BaseSynthesizer | None = None,
        num_steps: int | None = 3,
        early_stopping: bool = True,
        index_summary: str = "None",
        stop_fn: Callable[[dict[str, Any]], bool] | None = None,
        callback_manager: Any = None,
    ) -> None:
        super().__init__(response_synthesizer, callback_manager)
        self.query_engine = query_engine
        self._transform, self._most, self._summary = query_transform, num_steps, index_summary
        self._stops = (stop_fn or _is_none) if early_stopping else _never
        self.workflow = MultiStepWorkflow(self)

    async def next_question(self, query: QueryBundle, pairs: Sequence[tuple[str, str]]) -> QueryBundle | None:
        """Return the next question; None if the answers are enough."""
        if self._most is not None and len(pairs) >= self._most:
            return None
        before = "\n".join(f"- {question}\n- {answer}" for question, answer in pairs)
        question = await self._transform.arun(query, {"prev_reasoning": before, "index_summary": self._summary})
        return None if self._stops({"query_bundle": question}) else question

    def _get_prompt_modules(self) -> dict[str, PromptMixin]:
        return {**super()._get_prompt_modules(), "query_transform": self._transform}


def _is_none(given: dict[str, Any]) -> bool:
    return "none" in given["query_bundle"].query_str.lower()


def _never(_given: dict[str, Any]) -> bool:
    return False
