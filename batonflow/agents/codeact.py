"""CodeActAgent: an agent that acts by Python code of its model.

The method is from Wang et al., "Executable Code Actions Elicit Better LLM Agents" (2024): one snippet replaces many
tool calls, and its variables hold data that the model does not have to read.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, overload

from pydantic import Field, PrivateAttr, SerializeAsAny, field_validator

from batonflow.agents import layers
from batonflow.agents.asking import PAUSED, streamed, turn_shown, unpaused, whole_answer, with_reason, without_prompt
from batonflow.agents.events import AgentInput, AgentOutput, ToolCall, ToolCallResult, raw_of
from batonflow.agents.function import ScratchpadAgent, messages_of_turn, tool_message
from batonflow.agents.invocation import READ_RESULT, ToolInvocation, call_options
from batonflow.agents.loop import AgentLoop
from batonflow.agents.members import HANDOFF_TOOL
from batonflow.agents.memory import BaseMemory
from batonflow.agents.memory.turns import as_shown, observation
from batonflow.agents.prompts import CODE_ACT, CODE_ACT_SANDBOXED, CODE_RESULT
from batonflow.agents.snippets import drop, run_snippet
from batonflow.agents.tool_calls import perform, tools_of
from batonflow.clock import current_source
from batonflow.llms import ChatMessage, ChatResponse, MessageRole, ToolCallBlock
from batonflow.llms.function_calling import FunctionCallingLLM
from batonflow.llms.prompts import BasePromptTemplate, PromptTemplate
from batonflow.llms.prompts.base import as_template
from batonflow.tools import (
    AsyncBaseTool,
    BaseTool,
    FunctionTool,
    ToolOutput,
    ToolPolicy,
    ToolSelection,
    adapt_to_async_tool,
)
from batonflow.tools.code import Executor, Limits, declarations, default_executor
from batonflow.tools.code.functions import code_functions
from batonflow.workflow_core import Context
from batonflow.workflow_core.typed import AgentDepsT, OutT

if TYPE_CHECKING:
    from typing_extensions import TypeForm, Unpack

    from batonflow.agents.options import BT, DT, CodeActAgentOptions, T

__all__ = ["EXECUTE", "CodeActAgent"]

EXECUTE = "execute"
"""The name of the tool that runs code."""

_BLOCK = re.compile(r"<execute>(.*?)</execute>", re.DOTALL)
# Models that stop at the closing mark do not write it; then the opening one begins or ends a line, or code stands right
# behind it, which is not so where it is only mentioned.
_LAST_BLOCK = re.compile(
    r"<execute>(.*?)</execute>"
    r"|(?:^[ \t]*<execute>|<execute>(?=[ \t]*(?:\r?\n|\Z)|[\w#@]|[ \t]+[\w.]+(?:\(|[ \t]*=)))(.*)\Z",
    re.DOTALL | re.MULTILINE,
)
_FENCED = re.compile(r"\A```\w*\r?\n(.*?)(?:\r?\n)?```\Z", re.DOTALL)


class _ExecuteTool(FunctionTool):
    """The tool of a CodeActAgent that runs code."""


class CodeActAgent(ScratchpadAgent[AgentDepsT, OutT]):
    """An agent that runs its model's code and returns the output, until the model answers in plain text.

    Without ``code_execute_fn`` the code runs in a sandbox and calls the agent's tools as async functions. Arguments
    are checked, approvals are requested and events are streamed as for other tool calls.

    Args:
        code_execute_fn: Your own function that runs code: it takes the code and returns a text for the model. The model
            gets a description of the tools; the function has to provide them to the code.
        executor: The sandbox for the code; ``MontyExecutor()`` by default.
        limits: The limits for the code in the sandbox.
        code_act_system_prompt: The instructions for the model, with ``{tool_descriptions}`` and, in a sandbox,
            ``{hints}``. The ``system_prompt`` follows them.
        scratchpad_key: The key of the state store for the messages of the current turn.

    Raises:
        ValueError: Both ``code_execute_fn`` and ``executor`` or ``limits`` are given, or a tool is called ``execute``.
        SandboxUnavailableError: Neither is given and pydantic-monty is not installed.

    Example:
        >>> agent = CodeActAgent(llm="openai:gpt-5.6", tools=[add])
        >>> print(agent.run_sync("What is 2 + 40?"))
    """

    name: str = "code_act_agent"
    description: str = "A workflow agent that can execute code."
    code_execute_fn: Callable[..., Any] | None = None
    executor: Any = Field(default=None, exclude=True)
    limits: Limits = Field(default_factory=Limits)
    code_act_system_prompt: SerializeAsAny[BasePromptTemplate] = Field(default_factory=lambda: PromptTemplate(CODE_ACT))

    _bf_executor: Executor = PrivateAttr()

    @overload
    def __init__(
        self: "CodeActAgent[DT, str]",
        code_execute_fn: Callable[..., Any] | None = None,
        *,
        deps_type: "type[DT]" = object,
        output_type: None = None,
        output_cls: None = None,
        **options: "Unpack[CodeActAgentOptions[DT]]",
    ) -> None: ...
    @overload
    def __init__(
        self: "CodeActAgent[DT, BT]",
        code_execute_fn: Callable[..., Any] | None = None,
        *,
        deps_type: "type[DT]" = object,
        output_type: None = None,
        output_cls: "type[BT]",
        **options: "Unpack[CodeActAgentOptions[DT]]",
    ) -> None: ...
    @overload
    def __init__(
        self: "CodeActAgent[DT, T]",
        code_execute_fn: Callable[..., Any] | None = None,
        *,
        deps_type: "type[DT]" = object,
        output_type: "TypeForm[T]",
        output_cls: None = None,
        **options: "Unpack[CodeActAgentOptions[DT]]",
    ) -> None: ...
    @overload
    def __init__(
        self: "CodeActAgent[DT, T]",
        code_execute_fn: Callable[..., Any] | None = None,
        *,
        deps_type: "type[DT]" = object,
        output_type: "Callable[..., Awaitable[T]]",
        output_cls: None = None,
        **options: "Unpack[CodeActAgentOptions[DT]]",
    ) -> None: ...
    @overload
    def __init__(
        self: "CodeActAgent[DT, T]",
        code_execute_fn: Callable[..., Any] | None = None,
        *,
        deps_type: "type[DT]" = object,
        output_type: "Callable[..., T]",
        output_cls: None = None,
        **options: "Unpack[CodeActAgentOptions[DT]]",
    ) -> None: ...
    @overload
    def __init__(
        self: "CodeActAgent[DT, T]",
        code_execute_fn: Callable[..., Any] | None = None,
        *,
        deps_type: "type[DT]" = object,
        output_type: "Sequence[type[T] | Callable[..., Awaitable[T]] | Callable[..., T]]",
        output_cls: None = None,
        **options: "Unpack[CodeActAgentOptions[DT]]",
    ) -> None: ...
    @overload
    def __init__(
        self: "CodeActAgent[DT, Any]",
        code_execute_fn: Callable[..., Any] | None = None,
        *,
        deps_type: "type[DT]" = object,
        output_type: Sequence[Any],
        output_cls: None = None,
        **options: "Unpack[CodeActAgentOptions[DT]]",
    ) -> None: ...
    def __init__(self, code_execute_fn: Callable[..., Any] | None = None, **options: Any) -> None:
        given = [name for name in ("executor", "limits") if options.get(name) is not None]
        if code_execute_fn is not None and given:
            raise ValueError(
                f"CodeActAgent takes code_execute_fn= or {given[0]}=, not both: a function runs the code in its own "
                "way, an executor runs it in a sandbox"
            )
        if code_execute_fn is None and options.get("code_act_system_prompt") is None:
            options["code_act_system_prompt"] = CODE_ACT_SANDBOXED
        executor = options.get("executor")
        if executor is not None and not isinstance(executor, Executor):
            raise ValueError(f"executor takes an executor such as MontyExecutor(), got {executor!r}")
        options["code_execute_fn"] = code_execute_fn
        if isinstance(options.get("tools"), list):  # model_dump() contains the tool that runs code
            options["tools"] = [tool for tool in options["tools"] if not isinstance(tool, _ExecuteTool)]
        super().__init__(**options)
        if self.typed_output is not None and self.typed_output.functions:
            raise ValueError(
                "CodeActAgent takes types as output_type, and no functions: its model calls tools from code"
            )
        if code_execute_fn is None:
            executor = self._bf_executor = executor or default_executor()

            async def run(ctx: Context[Any], code: str) -> ToolOutput:
                return await _execute(self, executor, ctx, code)

            # A snippet continues where it stopped, and its calls have their own outcomes.
            execute = _ExecuteTool.from_defaults(
                async_fn=run, name=EXECUTE, description="Run Python code.", policy=ToolPolicy(idempotent=True)
            )
        else:
            execute = _execute_tool(code_execute_fn)
        self.tools = [*self.tools, execute]

    @property
    def reads_on(self) -> bool:
        """Tell whether code can call a tool that reads on. A function of the user cannot call tools of the run."""
        return self.code_execute_fn is None

    @field_validator("code_act_system_prompt", mode="before")
    @classmethod
    def _bf_as_prompt(cls, value: Any) -> Any:
        return as_template(value)

    @field_validator("tools", mode="after")
    @classmethod
    def _bf_no_tool_of_that_name(cls, tools: list[Any]) -> list[Any]:
        if any(isinstance(tool, BaseTool) and tool.metadata.name == EXECUTE for tool in tools):
            raise ValueError("CodeActAgent runs code with its own tool 'execute': give your tool another name")
        return tools

    def _get_prompts(self) -> dict[str, BasePromptTemplate]:
        return {"code_act_system_prompt": self.code_act_system_prompt}

    def _update_prompts(self, prompts_dict: dict[str, BasePromptTemplate]) -> None:
        if "code_act_system_prompt" in prompts_dict:
            self.code_act_system_prompt = prompts_dict["code_act_system_prompt"]

    # --- methods for the loop -----------------------------------------------------------------------------------------

    async def take_step(
        self,
        ctx: Context[Any],
        llm_input: list[ChatMessage],
        tools: Sequence[AsyncBaseTool],
        memory: BaseMemory,  # noqa: ARG002 - part of the contract
    ) -> AgentOutput:
        """Return a message of the model: code to run, a handoff, or the answer.

        Raises:
            ValueError: The agent may hand over and the model cannot call tools, or, with
                ``code_execute_fn``, a tool is not a FunctionTool or has a Context parameter.
            WorkflowRuntimeError: The answer pauses too often.
        """
        scratchpad = await messages_of_turn(self, ctx)
        values = {"tool_descriptions": self._get_tool_descriptions(tools)}
        if self.code_execute_fn is None:
            values["hints"] = self._bf_executor.hints
        shown = _with_prompt(self, [*llm_input, *as_shown(turn_shown(scratchpad))], values)
        ctx.write_event_to_stream(AgentInput(input=shown, current_agent_name=self.name))
        ask = self._get_streaming_response if self.streams_answer() else self._get_response
        response = await ask(ctx, shown, tools)
        if response.stop_reason == PAUSED:
            response = await unpaused(response, lambda said: ask(ctx, [*shown, said], tools), self.name)
        calls: list[ToolSelection | ToolCallResult] = []
        code = self._extract_code_from_response(response.message.content or "")
        if code:
            call_id = f"call_{current_source().token(12)}"
            calls.append(ToolSelection(tool_id=call_id, tool_name=EXECUTE, tool_kwargs={"code": code}))
        llm = self.the_llm()
        if isinstance(llm, FunctionCallingLLM):
            calls.extend(llm.get_tool_calls_from_response(response, error_on_no_tool_call=False))
        await ctx.store.set(self.scratchpad_key, [*scratchpad, response.message])
        output = AgentOutput(
            response=response.message, tool_calls=calls, raw=raw_of(response), current_agent_name=self.name
        )
        return with_reason(output, response.stop_reason)

    async def handle_tool_call_results(
        self, ctx: Context[Any], results: list[ToolCallResult], memory: BaseMemory
    ) -> None:
        """Keep the output of the code as a message of the user, and answer native calls.

        Raises:
            ValueError: With ``code_execute_fn``, the model called a tool other than ``execute`` and ``handoff``. The
                memory then contains the turn without the native calls of this answer.
        """
        scratchpad = await messages_of_turn(self, ctx)
        native = {
            block.tool_call_id for message in scratchpad for block in message.blocks if isinstance(block, ToolCallBlock)
        }
        observations: list[ChatMessage] = []
        answers: list[ChatMessage] = []
        for result in results:
            if result.tool_name == EXECUTE and result.tool_id not in native:
                observations.append(observation(CODE_RESULT.format(content=result.tool_output.content)))
                continue
            answers.append(tool_message(result))
        names = [result.tool_name for result in results]
        stray = next((name for name in names if name not in (EXECUTE, HANDOFF_TOOL)), None)
        if stray is not None and self.code_execute_fn is not None:
            # The run ends here. Only executed code is kept, because vendors refuse calls without results.
            said = [ChatMessage(one.content, role=one.role) for one in scratchpad[-1:] if observations]
            await memory.aput_messages([*scratchpad[:-1], *said, *observations])
            await ctx.store.set(self.scratchpad_key, [])
            raise ValueError(f"Unknown tool name: {stray}; a CodeActAgent calls its tools in code")
        # Vendors require the results directly after the message with the calls.
        await ctx.store.set(self.scratchpad_key, [*scratchpad, *answers, *observations])

    async def finalize(self, ctx: Context[Any], output: AgentOutput, memory: BaseMemory) -> AgentOutput:
        """Move the messages of this turn into the memory; close the interpreter after an answer."""
        if self.code_execute_fn is None and not output.tool_calls:  # an agent that hands over may get the task back
            # Before the change of the memory, so that records contain both changes.
            await drop(ctx, self.name)
        return await super().finalize(ctx, output, memory)

    async def unfinished(self, ctx: Context[Any]) -> list[Any]:
        """Return the messages of this turn; a snippet without output is a call without a result."""
        left = await super().unfinished(ctx)
        last = next((message for message in reversed(left) if message.role != MessageRole.TOOL), None)
        said = (last.content or "") if last is not None and last.role == MessageRole.ASSISTANT else ""
        if code := self._extract_code_from_response(said):
            left.append(ToolSelection(tool_id="", tool_name=EXECUTE, tool_kwargs={"code": code}))
        return left

    # --- asking the model ---------------------------------------------------------------------------------------------

    # Programs of LlamaIndex override these two methods.

    def _get_tool_descriptions(self, tools: Sequence[BaseTool]) -> str:
        """Return the description of the functions that the code can call, for the model."""
        adapted = [adapt_to_async_tool(tool) for tool in tools]
        described = [tool for tool in adapted if tool.metadata.get_name() not in (HANDOFF_TOOL, EXECUTE)]
        return _signatures(described) if self.code_execute_fn is not None else declarations(described) or "(none)"

    def _extract_code_from_response(self, response_text: str) -> str | None:
        """Return the code in a text of the model; empty without code."""
        if self.code_execute_fn is not None:
            return "\n\n".join(block.strip() for block in _BLOCK.findall(response_text))
        found = [closed or unclosed for closed, unclosed in _LAST_BLOCK.findall(response_text)]
        code = "\n\n".join(block for block in map(_unwrapped, found) if block)
        # An empty block also runs; its empty output shows the mistake to the model.
        ends = response_text.rstrip().endswith(("<execute>", "</execute>"))
        return code or ("pass" if found and (ends or "\n" in "".join(found)) else "")

    async def _get_response(
        self,
        ctx: Context[Any],  # noqa: ARG002 - the same signature as the streaming form
        current_llm_input: list[ChatMessage],
        tools: Sequence[AsyncBaseTool],
    ) -> ChatResponse:
        llm: Any = self.the_llm()
        handoff = _handoff_in(self, tools)
        if handoff:
            option = whole_answer(llm, with_tools=True)
            return await llm.achat_with_tools(tools=handoff, chat_history=current_llm_input, **option)
        return await llm.achat(current_llm_input, **whole_answer(llm))

    async def _get_streaming_response(
        self, ctx: Context[Any], current_llm_input: list[ChatMessage], tools: Sequence[AsyncBaseTool]
    ) -> ChatResponse:
        llm: Any = self.the_llm()
        handoff = _handoff_in(self, tools)
        if handoff:
            chunks = await llm.astream_chat_with_tools(tools=handoff, chat_history=current_llm_input)
        else:
            chunks = await llm.astream_chat(current_llm_input)
        return await streamed(ctx, chunks, self.name)


def _unwrapped(block: str) -> str:
    """Return the code of a block without a fence around it and without common indentation."""
    fenced = _FENCED.match(block.strip())
    lines = (fenced[1] if fenced else block).strip("\r\n").split("\n")
    first = next((line for line in lines if line.strip()), "")
    indent = first[: len(first) - len(first.lstrip())]
    if indent and all(line.startswith(indent) or not line.strip() for line in lines):
        lines = [line.removeprefix(indent) for line in lines]
    return "\n".join(lines).strip()


def _execute_tool(function: Callable[..., Any]) -> FunctionTool:
    """Return the user's function as a tool of one argument, under any name of the parameter."""
    if inspect.isroutine(function) and "code" in inspect.signature(function).parameters:
        return _ExecuteTool.from_defaults(function, name=EXECUTE)

    def run(code: str) -> Any:
        return function(code)

    async def run_async(code: str) -> Any:
        return await function(code)

    return _ExecuteTool.from_defaults(
        run_async if inspect.iscoroutinefunction(function) else run, name=EXECUTE, description="Run Python code."
    )


def _signatures(tools: Sequence[AsyncBaseTool]) -> str:
    """Return the signatures of the tools' functions, as in a program."""
    shown: list[str] = []
    for tool in tools:
        name = tool.metadata.get_name()
        if not isinstance(tool, FunctionTool):
            raise ValueError(
                f"Tool {name} is not a FunctionTool: with code_execute_fn, CodeActAgent shows functions to its model. "
                "Without it, code can call tools of every kind"
            )
        if tool.requires_context:
            raise ValueError(
                f"Tool {name} requires context, which code run by code_execute_fn cannot give. Without "
                "code_execute_fn, code can call it"
            )
        word = "async def" if inspect.iscoroutinefunction(tool.real_fn) else "def"
        text = f"{word} {name}{inspect.signature(tool.real_fn)}:"
        about = inspect.getdoc(tool.real_fn)
        body = "    ..." if not about else '    """' + about.replace("\n", "\n    ") + '"""\n    ...'
        shown.append(f"{text}\n{body}")
    return "\n\n".join(shown)


def _with_prompt(
    agent: CodeActAgent[Any, Any], messages: list[ChatMessage], values: dict[str, str]
) -> list[ChatMessage]:
    """Return the messages after the code prompt, which has the system prompt as a part."""
    text = agent.code_act_system_prompt.format(**values)
    if agent.system_prompt:
        text = f"{text}\n{agent.system_prompt}"
    prompt = ChatMessage(text, role=MessageRole.SYSTEM)
    # Another system message comes from the memory or the caller and has to reach the model.
    return [prompt, *without_prompt(messages, agent.system_prompt)]


def _handoff_in(agent: CodeActAgent[Any, Any], tools: Sequence[AsyncBaseTool]) -> list[AsyncBaseTool]:
    """Return the handoff tool, the only native tool, or None."""
    found = [tool for tool in tools if tool.metadata.get_name() == HANDOFF_TOOL]
    if found and not isinstance(agent.the_llm(), FunctionCallingLLM):
        raise ValueError(f"Agent {agent.name}: llm must be a FunctionCallingLLM to hand over to other agents")
    return found


async def _execute(agent: CodeActAgent[Any, Any], executor: Executor, ctx: Context[Any], code: str) -> ToolOutput:
    """Run code in the sandbox, where it can call the tools that the agent may call."""
    asked: str = await ctx.store.get("user_msg_str", default="")
    around = None if ctx.run is None else ctx.run.workflow
    # A team may allow fewer tools than the agent has.
    team = around.__batonflow_team__ if isinstance(around, AgentLoop) else agent.__batonflow_team__
    of_team = team.member(agent.name) is agent
    known = await (tools_of(ctx, team, agent, asked) if of_team else agent.get_tools(asked))
    tools = [tool for tool in known if tool.metadata.get_name() not in (EXECUTE, HANDOFF_TOOL)]
    # The model is told of it when there is something to read. A session keeps the tools it was opened with, and
    # one with other tools would be another session: so it is there from the beginning.
    if READ_RESULT not in code_functions(tools):
        tools.append(layers.read_result(agent.max_result_chars))

    async def call_tool(tool: AsyncBaseTool, call: ToolCall) -> tuple[ToolOutput, dict[str, Any]]:
        invocation = ToolInvocation(ctx, team, agent, tool, call, call.tool_id)
        return await perform(invocation), invocation.reported

    options = call_options()
    key: str = options.get("idempotency_key", "")
    return await run_snippet(
        ctx,
        code,
        agent=agent.name,
        place=key.removeprefix(f"{ctx.run_id}/"),
        call_id=options.get("call_id", ""),
        executor=executor,
        limits=agent.limits,
        tools=tools,
        call_tool=call_tool,
    )
