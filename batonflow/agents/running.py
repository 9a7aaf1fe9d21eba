"""Runs of an agent or a team: starting one, branching off from one, and one as a tool of another agent."""

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from batonflow.agents.as_tool import AgentTool, attach_agents
from batonflow.agents.budget import Budget
from batonflow.agents.events import AgentWorkflowStartEvent
from batonflow.agents.handler import AgentHandler
from batonflow.agents.members import EarlyStopping, Team, check_options, warn_of_misspelt
from batonflow.agents.memory import BaseMemory
from batonflow.agents.prompts import GOES_ON
from batonflow.instrumentation.logs import logger_named
from batonflow.llms import LLM, ChatMessage, genai
from batonflow.llms.settings import llm_from
from batonflow.workflow_core import Context, Workflow, WorkflowHandler
from batonflow.workflow_core.events import Event, StartEvent
from batonflow.workflow_core.options import NotInitialized
from batonflow.workflow_core.stored_runs import check_context

__all__ = ["AgentRuns"]

logger = logger_named("batonflow.agents.loop")


class AgentRuns(Workflow):
    """A workflow of agents, as a program runs it."""

    name: str
    description: str

    __batonflow_handler__: ClassVar[type[WorkflowHandler]] = AgentHandler
    if TYPE_CHECKING:
        __batonflow_team__: Team
    else:
        __batonflow_team__ = NotInitialized()

    def trace_tags(self) -> dict[str, Any]:
        """Return the tags for the span of a run."""
        return {
            genai.OPERATION: "invoke_agent",
            genai.AGENT_NAME: self.name,
            genai.AGENT_DESCRIPTION: self.description,
        }

    def as_tool(self, name: str | None = None, description: str | None = None) -> AgentTool:
        """Return this agent or team as a tool of another agent; it works in a run of its own, inside the caller's.

        Args:
            name: The tool's name for models; the agent's name when left out.
            description: The tool's description for models; the agent's description when left out.

        Example:
            >>> editor = FunctionAgent(name="editor", llm=llm, tools=[researcher.as_tool()])
        """
        return AgentTool(self, name or self.name, description or self.description)

    def speaks_in(self, path: str) -> bool:
        """Return whether text of the run at ``path`` inside this one counts as its own; that of tools does not."""
        return not path

    def run(  # pyright: ignore[reportIncompatibleMethodOverride] - an agent's own positional arguments
        self,
        user_msg: str | ChatMessage | Context[Any] | None = None,
        chat_history: list[ChatMessage] | StartEvent | None = None,
        memory: BaseMemory | None = None,
        ctx: Context[Any] | None = None,
        max_iterations: int | None = None,
        early_stopping_method: EarlyStopping | None = None,
        start_event: StartEvent | None = None,
        budget: Budget | None = None,
        **kwargs: Any,
    ) -> AgentHandler:
        """Start a run and return its handler.

        Args:
            user_msg: The user's message. A Context here is taken as ``ctx``.
            chat_history: The conversation before it.
            memory: Keeps the conversation; one given here replaces that of ``ctx``.
            ctx: Carries memory and state from an earlier run, or a snapshot to go on with. A cancelled run goes on
                without a message; a message begins a turn of its own.
            max_iterations: The number of answers the models may give, 20 by default.
            early_stopping_method: The end after that: ``"force"`` an error, or ``"generate"`` an answer.
            start_event: The event to start with, instead of the arguments before.
            budget: The limits of this run, beside the limits of agents and team.
            kwargs: ``run_id``, and further values for the start event.

        Raises:
            TypeError: ``ctx`` is not a Context.
            ValueError: Another argument has a value that it cannot have; the text names it.

        Example:
            >>> handler = agent.run("What is 2 + 40?")
            >>> print(await handler)
        """
        attach_agents(self, self.__batonflow_team__.all_tools())  # some are put there after construction
        check_options(max_iterations, early_stopping_method, budget)
        warn_of_misspelt(kwargs, type(self).__name__)
        if isinstance(user_msg, Context):
            ctx, user_msg = user_msg, None
            if isinstance(chat_history, StartEvent):
                start_event, chat_history = chat_history, None
        check_context(ctx)
        given = {
            "user_msg": user_msg,
            "chat_history": chat_history,
            "memory": memory,
            "max_iterations": max_iterations,
            "early_stopping_method": early_stopping_method,
            "budget": budget,
        }
        given = {name: value for name, value in given.items() if value is not None}
        options = {name: kwargs.pop(name) for name in ("run_id", "stepwise") if name in kwargs}
        # Before the context is touched, as the event may refuse its values.
        begins = AgentWorkflowStartEvent(**given, **kwargs) if start_event is None else start_event
        if ctx is not None and (start_event is not None or user_msg is not None or chat_history):
            ctx.leave_cancelled_run()
        if ctx is not None and ctx.is_resumable:
            if given:
                logger.warning(GOES_ON.format(names=", ".join(given)))
        elif start_event is None:
            start_event, kwargs = begins, {}
        return cast("AgentHandler", super().run(ctx=ctx, start_event=start_event, **options, **kwargs))

    def fork(  # pyright: ignore[reportIncompatibleMethodOverride] - it takes a model too
        self,
        run_id: str,
        at: int,
        *,
        state: Mapping[str, Any] | None = None,
        event: Event | None = None,
        new_id: str | None = None,
        llm: LLM | str | None = None,
    ) -> AgentHandler:
        """Begin a run that shares the beginning of another one, up to a commit; see ``Workflow.fork``.

        Args:
            run_id: The run to branch off from.
            at: The last commit that both have.
            state: Values to put into the state.
            event: Sent to the new run.
            new_id: Id of the new run.
            llm: The model of all agents from here on, in the new run only.

        Example:
            >>> handler = team.fork("tides-1", at=12, llm="anthropic:claude-sonnet-5")
        """
        model = llm_from(llm) if isinstance(llm, str) else llm
        agent = self if model is None else self.asking(model)
        forked = super(AgentRuns, agent).fork(run_id, at, state=state, event=event, new_id=new_id)
        return cast("AgentHandler", forked)

    def asking(self, llm: LLM) -> Self:
        """Return the same agent or team with another model."""
        other = copy.copy(self)
        cast("Any", other).llm = llm
        return other
