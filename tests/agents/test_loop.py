"""The loop: guards on every way out, the state in every request, and options that mean nothing."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel

from batonflow.agents import (
    AgentInput,
    AgentOutput,
    AgentWorkflow,
    Block,
    Budget,
    FunctionAgent,
    ReActAgent,
    Replace,
    ToolCall,
)
from batonflow.agents.memory import InsertMethod, Memory, StaticMemoryBlock
from batonflow.llms import ChatMessage, ScriptedLLM, ToolCallBlock, tool_call
from batonflow.tools import FunctionTool, tool
from batonflow.workflow_core import Context, MemoryStore, StopEvent, WorkflowCancelledByUser, step
from tests.workflow_core.flows import until


def secret() -> str:
    """Tell the secret."""
    return "the secret is 7"


def no_secrets(ctx: Context[Any], message: ChatMessage) -> Block | None:
    return Block("Not for you.") if "secret is" in (message.content or "") else None


class TestOutputGuards:
    async def test_the_output_of_a_direct_tool(self) -> None:
        direct = FunctionTool.from_defaults(secret, return_direct=True)
        agent = FunctionAgent(llm=ScriptedLLM([tool_call("secret")]), tools=[direct], output_guards=[no_secrets])
        output = await agent.run("Tell me.")
        assert (str(output), output.get("blocked")) == ("Not for you.", "output")

    @pytest.mark.parametrize("budget", [None, Budget(max_tool_calls=1, on_exceeded="answer")])
    async def test_the_answer_from_what_was_gathered(self, budget: Budget | None) -> None:
        calls = [tool_call("secret"), tool_call("secret")] if budget else [tool_call("secret")]
        agent = FunctionAgent(
            llm=ScriptedLLM([*calls, "the secret is 8"]), tools=[secret], output_guards=[no_secrets], budget=budget
        )
        ctx = Context[Any](agent)
        limits: dict[str, Any] = {} if budget else {"max_iterations": 1, "early_stopping_method": "generate"}
        assert str(await agent.run("Tell me.", ctx=ctx, **limits)) == "Not for you."
        kept = await (await ctx.store.get("memory")).aget_all()
        assert kept[-1].content == "Not for you."

    async def test_an_answer_in_text_without_its_thoughts(self) -> None:
        seen: list[str | None] = []

        def look(ctx: Context[Any], message: ChatMessage) -> None:
            seen.append(message.content)

        llm = ScriptedLLM(["Thought: the secret is 7\nAnswer: I will not say."])
        agent = ReActAgent(llm=llm, output_guards=[look])
        assert str(await agent.run("Tell me.")) == "I will not say."
        assert seen == ["I will not say."]


class EventForReader(BaseModel):
    text: str


class TestState:
    @staticmethod
    def seen(llm: ScriptedLLM) -> list[str]:
        return [
            next(message.content or "" for message in request.messages if message.role == "user")
            for request in llm.requests
        ]

    async def test_every_request_of_an_agent_shows_the_state_it_took_over_with(self) -> None:
        async def note(ctx: Context[Any]) -> str:
            """Write a note."""
            await ctx.store.set("state", {"notes": 1})
            return "noted"

        llm = ScriptedLLM([tool_call("note"), tool_call("note"), "done"])
        agent = FunctionAgent(llm=llm, tools=[note], initial_state={"notes": 0})
        ctx = Context[Any](agent)
        await agent.run("go", ctx=ctx)
        first, *others = self.seen(llm)
        assert "{'notes': 0}" in first
        assert others == [first, first]
        kept = await (await ctx.store.get("memory")).aget_all()
        assert kept[0].content == "go"

    async def test_also_where_a_memory_adds_to_the_question(self) -> None:
        block = StaticMemoryBlock(name="about", static_content="Ann is allergic.")
        memory = Memory.from_defaults(memory_blocks=[block], insert_method=InsertMethod.USER)
        llm = ScriptedLLM([tool_call("secret"), "done"])
        await FunctionAgent(llm=llm, tools=[secret], initial_state={"notes": 0}).run("go", memory=memory)
        first, second = self.seen(llm)
        assert "{'notes': 0}" in first
        assert second == first

    @pytest.mark.parametrize("budget", [None, Budget(max_tool_calls=1, on_exceeded="answer")])
    async def test_and_the_last_request_of_a_run_that_is_stopped_early(self, budget: Budget | None) -> None:
        llm = ScriptedLLM([tool_call("secret"), tool_call("secret"), "early"])
        agent = FunctionAgent(llm=llm, tools=[secret], initial_state={"notes": 0}, early_stopping_method="generate")
        assert str(await agent.run("go", max_iterations=20 if budget else 2, budget=budget)) == "early"
        assert all("{'notes': 0}" in text for text in self.seen(llm))

    async def test_who_takes_over_is_shown_the_state_of_that_moment(self) -> None:
        async def note(ctx: Context[Any]) -> str:
            """Write a note."""
            await ctx.store.set("state", {"notes": 1})
            return "noted"

        one = ScriptedLLM([tool_call("note"), tool_call("handoff", to_agent="two", reason="your turn")])
        two = ScriptedLLM(["done"])
        team = AgentWorkflow(
            agents=[
                FunctionAgent(name="one", description="Begins.", llm=one, tools=[note]),
                ReActAgent(name="two", description="Ends.", llm=two),
            ],
            root_agent="one",
            initial_state={"notes": 0},
        )
        await team.run("go")
        assert all("{'notes': 0}" in text for text in self.seen(one))
        assert "{'notes': 1}" in self.seen(two)[0]


class TestTeamsInTeams:
    async def test_the_question_is_the_users_whatever_was_observed_since(self) -> None:
        asked: list[str | None] = []

        def look(ctx: Context[Any], message: ChatMessage) -> None:
            asked.append(message.content)

        inner = AgentWorkflow(
            agents=[FunctionAgent(name="in", description="In.", llm=ScriptedLLM(["done"]), input_guards=[look])],
            name="inner",
            description="The inner team.",
        )
        hand_over = 'Thought: theirs\nAction: handoff\nAction Input: {"to_agent": "inner", "reason": "r"}'
        root = ReActAgent(name="root", description="Root.", llm=ScriptedLLM([hand_over]))
        assert str(await AgentWorkflow(agents=[root, inner], root_agent="root").run("How high?")) == "done"
        assert asked == ["How high?"]

    async def test_what_the_outer_memory_knows_is_known_inside_and_what_the_answer_is_outside(self) -> None:
        class Cut(ScriptedLLM):
            def _finish(self, request: Any, events: Any) -> Any:
                return replace(super()._finish(request, events), reason="length")

        block = StaticMemoryBlock(name="about", static_content="Ann is allergic.")
        llm = Cut(['{"text": "It is'])
        output = await self.nested(llm).run("Why?", memory=Memory.from_defaults(memory_blocks=[block]))
        assert "allergic" in str(llm.requests[0].messages)
        assert output.get("stop_reason") == "length"
        output = await self.nested(ScriptedLLM(["The secret is 7."]), output_guards=[no_secrets]).run("Why?")
        assert output.get("blocked") == "output"

    @pytest.mark.parametrize("whose", ["inner", "outer"])
    async def test_a_structured_answer_may_be_wanted_of_either_team(self, whose: str) -> None:
        llm = ScriptedLLM(["It is so.", '{"text": "so"}'])
        output = await self.nested(llm, whose=whose).run("Why?")
        assert output.structured_response == {"text": "so"}

    async def test_a_guard_against_the_form_of_the_inner_team_is_not_one_against_the_outer_one(self) -> None:
        llm = ScriptedLLM(["It is so.", '{"text": "the secret is 7"}'])
        team = self.nested(llm, whose="inner", output_guards=[no_secrets])
        team.structured_output_fn = lambda messages: {"outer": True}
        output = await team.run("Why?")
        assert (str(output), output.structured_response, output.get("blocked")) == ("It is so.", {"outer": True}, None)

    async def test_that_of_the_inner_team_is_not_taken_for_one_that_the_outer_wants_and_does_not_get(self) -> None:
        def fail(messages: Any) -> Any:
            raise RuntimeError("no")

        team = self.nested(ScriptedLLM(["It is so.", '{"text": "so"}']), whose="inner")
        team.structured_output_fn = fail
        with pytest.warns(UserWarning, match="structured output"):
            output = await team.run("Why?")
        assert output.structured_response is None

    @staticmethod
    def nested(llm: ScriptedLLM, *, whose: str = "", **options: Any) -> AgentWorkflow:
        member = FunctionAgent(name="member", description="Works.", llm=llm, **options)
        cls = {whose: EventForReader}
        inner = AgentWorkflow(agents=[member], name="inner", description="Knows.", output_cls=cls.get("inner"))
        handoff = ScriptedLLM([tool_call("handoff", to_agent="inner", reason="r")])
        chief = FunctionAgent(name="chief", description="Begins.", llm=handoff)
        return AgentWorkflow(agents=[chief, inner], root_agent="chief", output_cls=cls.get("outer"))


class TestHandoffs:
    async def test_a_call_that_says_nothing_does_not_stand_in_the_way_of_the_next(self) -> None:
        calls = [tool_call("handoff", to_agent="two"), tool_call("handoff", to_agent="two", reason="your turn")]
        team = AgentWorkflow(
            agents=[
                FunctionAgent(name="one", description="Begins.", llm=ScriptedLLM([calls])),
                FunctionAgent(name="two", description="Ends.", llm=ScriptedLLM(["done"])),
            ],
            root_agent="one",
        )
        output = await team.run("go")
        assert (str(output), output.current_agent_name) == ("done", "two")

    async def test_another_memory_is_another_conversation_for_every_member(self) -> None:
        llm = ScriptedLLM(["one", "two"])
        team = AgentWorkflow(agents=[FunctionAgent(llm=llm)], handoff_carries="own")
        ctx = Context[Any](team)
        await team.run("first secret question", ctx=ctx)
        await team.run("second", ctx=ctx, memory=type(await ctx.store.get("memory")).from_defaults())
        assert [message.content for message in llm.requests[1].messages] == ["second"]


class TestCallsWithoutAPosition:
    async def test_each_is_a_call_of_its_own(self) -> None:
        ran: list[int] = []

        @tool(requires_approval=True)
        def act(k: int) -> str:
            """Do something."""
            ran.append(k)
            return f"did {k}"

        class Sending(FunctionAgent):
            @step(replaces="parse_agent_output")
            async def parse(self, ctx: Context, ev: AgentOutput) -> StopEvent | AgentInput | ToolCall | None:
                if not ev.tool_calls:
                    return StopEvent(result=ev)
                await ctx.store.set("num_tool_calls", len(ev.tool_calls))
                for call in ev.tool_calls:
                    ctx.send_event(
                        ToolCall(tool_name=call.tool_name, tool_kwargs=call.tool_kwargs, tool_id=call.tool_id)
                    )
                return None

        agent = Sending(llm=ScriptedLLM([[tool_call("act", k=1), tool_call("act", k=2)], "done"]), tools=[act])
        handler = agent.run("go")
        async for request in handler.approvals():
            request.approve()
        assert str(await handler) == "done"
        assert sorted(ran) == [1, 2]


def act_never() -> None:
    """Do nothing."""


class TestWhatMeansNothing:
    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"max_iterations": 0}, "max_iterations is a whole number from 1 on, not 0"),
            ({"max_iterations": True}, "not True"),
            ({"max_iterations": "x"}, "not 'x'"),
            ({"early_stopping_method": "zz"}, "'force' or 'generate', not 'zz'"),
            ({"budget": {"max_tool_calls": 1}}, "budget is a Budget"),
            ({"memory": 5}, "memory is a BaseMemory, as .*, not 5"),
            ({"user_msg": 5}, "user_msg is a text or a ChatMessage, not 5"),
            ({"user_msg": ["go"]}, "user_msg is a text or a ChatMessage, not"),
            ({"user_msg": {"role": "nobody"}}, r"user_msg is not a ChatMessage: role: "),
            ({"chat_history": "go"}, "chat_history is a list of ChatMessage, not 'go'"),
            ({"chat_history": {"role": "user"}}, "chat_history is a list of ChatMessage, not"),
            ({"chat_history": ChatMessage("a")}, "chat_history is a list of ChatMessage, not"),
            ({"chat_history": [ChatMessage("a"), 5]}, r"chat_history\[1\] is not a ChatMessage but 5"),
        ],
    )
    def test_options_of_a_run(self, options: dict[str, Any], words: str) -> None:
        with pytest.raises(ValueError, match=words):
            FunctionAgent(llm=ScriptedLLM([])).run(**{"user_msg": "go", **options})

    def test_a_context_of_a_run(self) -> None:
        wrong: Any = {}
        with pytest.raises(TypeError, match=r"ctx must be a Context, such as Context\(workflow\), not {}"):
            FunctionAgent(llm=ScriptedLLM([])).run("go", ctx=wrong)

    def test_a_retriever_of_tools(self) -> None:
        with pytest.raises(ValueError, match="tool_retriever has a coroutine aretrieve"):
            FunctionAgent(llm=ScriptedLLM([]), tool_retriever=[act_never])

    def test_a_budget_of_a_team(self) -> None:
        wrong: Any = {"max_tool_calls": 1}
        with pytest.raises(ValueError, match="budget is a Budget"):
            AgentWorkflow(agents=[FunctionAgent(llm=ScriptedLLM([]))], budget=wrong)

    def test_two_tools_of_one_name(self) -> None:
        agents = [FunctionAgent(llm=ScriptedLLM([])) for _ in range(2)]
        with pytest.raises(ValueError, match="Two tools are called 'Agent'"):
            FunctionAgent(llm=ScriptedLLM([]), tools=[agent.as_tool() for agent in agents])


@pytest.mark.parametrize("store", [None, "memory:"])
@pytest.mark.parametrize("asks", [False, True])
async def test_what_is_said_after_a_cancel_begins_a_turn_of_its_own(*, asks: bool, store: str | None) -> None:
    ran: list[int] = []

    @tool(requires_approval=asks)
    async def pay(amount: int) -> str:
        """Pay."""
        ran.append(amount)
        await asyncio.sleep(60)
        return "paid"

    llm = ScriptedLLM([tool_call("pay", amount=5), "I have stopped."])
    agent = FunctionAgent(llm=llm, tools=[pay], store=store)
    handler = agent.run("Pay 5.")
    if asks:
        await anext(handler.approvals())
    else:
        await until(lambda: ran)
    await handler.cancel_run()
    with pytest.raises(WorkflowCancelledByUser):
        await handler
    again = agent.run("Stop! Do not pay.", ctx=handler.ctx)
    assert str(await again) == "I have stopped."
    assert again.open_inputs() == []
    assert ran == ([] if asks else [5])
    told = [(one.role.value, one.content) for one in llm.requests[-1].messages]
    assert [role for role, _ in told] == ["user", "assistant", "tool", "user"]
    assert str(told[2][1]).startswith("The run ended before this call had a result.")
    assert told[3][1] == "Stop! Do not pay."


async def test_a_run_that_goes_on_says_what_it_does_not_use(caplog: pytest.LogCaptureFixture) -> None:
    @tool(requires_approval=True)
    def act() -> str:
        """Do something."""
        return "done"

    agent = FunctionAgent(llm=ScriptedLLM([tool_call("act"), "It is done."]), tools=[act])
    handler = agent.run("Do it.")
    await anext(handler.approvals())
    ctx = Context.from_dict(agent, handler.ctx.to_dict())
    await handler.cancel_run()
    handler = agent.run("Stop!", ctx=ctx, max_iterations=3)
    assert "user_msg, max_iterations of this call to run() is not used" in caplog.text
    async for request in handler.approvals():
        request.approve()
    assert str(await handler) == "It is done."


class TestNames:
    async def test_a_name_that_no_vendor_takes_is_known_under_the_one_that_was_sent(self) -> None:
        llm = ScriptedLLM([tool_call("gr__e__"), "done"])
        odd = FunctionTool.from_defaults(secret, name="größe ✓")
        output = await FunctionAgent(llm=llm, tools=[odd]).run("go")
        assert llm.requests[0].tools[0].name == "gr__e__"
        assert output.tool_calls[0].tool_output.content == "the secret is 7"

    def test_names_that_become_one_on_the_way_are_refused(self) -> None:
        both = [FunctionTool.from_defaults(secret, name=name) for name in ("a b", "a_b")]
        with pytest.raises(ValueError, match="Two tools are called 'a_b'"):
            FunctionAgent(llm=ScriptedLLM([]), tools=both)


async def test_what_is_no_character_is_replaced_where_it_comes_in() -> None:
    def names(like: str) -> str:
        """List names."""
        return f"{like}: caf\udce9.txt"

    call = ToolCallBlock(tool_call_id="1", tool_name="names", tool_kwargs='{"like": "\\ud800x"}')
    llm = ScriptedLLM([ChatMessage([call], role="assistant"), "done"])
    agent = FunctionAgent(llm=llm, tools=[names])
    ctx = Context[Any](agent)
    output = await agent.run("go", ctx=ctx)
    assert output.tool_calls[0].tool_output.content == "\ufffdx: caf\ufffd.txt"
    assert "memory" in ctx.to_dict()["state"]["state_data"]["_data"]


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


async def test_an_exception_without_words_is_told_by_its_name() -> None:
    def fail() -> str:
        """Fail."""
        raise Mute

    def hook(ctx: Context[Any], call: ToolCall) -> None:
        raise Mute

    for hooks in ([], [hook]):
        llm = ScriptedLLM([tool_call("fail"), "done"])
        output = await FunctionAgent(llm=llm, tools=[fail], before_tool=hooks).run("go")
        assert "Mute" in output.tool_calls[0].tool_output.content


async def test_a_hook_that_replaces_with_nonsense_denies() -> None:
    nonsense: Any = "oops"

    def hook(ctx: Context[Any], call: ToolCall) -> Replace:
        return Replace(nonsense)

    output = await FunctionAgent(
        llm=ScriptedLLM([tool_call("secret"), "done"]), tools=[secret], before_tool=[hook]
    ).run("go")
    assert "was not run: the check" in output.tool_calls[0].tool_output.content


async def test_helpers_that_have_spent_the_same_are_told_apart() -> None:
    def helper(name: str, *turns: Any) -> FunctionTool:
        return FunctionAgent(name=name, description=name, llm=ScriptedLLM(turns), tools=[secret]).as_tool()

    both = [tool_call("a", input="x"), tool_call("b", input="x")]
    tools: Sequence[Any] = [helper("a", "from a"), helper("b", "from b")]
    agent = FunctionAgent(llm=ScriptedLLM([both, "done"]), tools=list(tools), budget=Budget(max_tool_calls=100))
    output = await agent.run("go")
    assert [call.tool_output.content for call in output.tool_calls] == ["from a", "from b"]


class TestWhatARunIsGiven:
    @pytest.mark.parametrize("name", ["user_message", "max_iteration", "memmory"])
    async def test_a_misspelt_option_is_named_with_the_right_one(self, name: str) -> None:
        agent = FunctionAgent(llm=ScriptedLLM(["Hello."]))
        with pytest.warns(UserWarning, match=rf"run\(\) ignores unknown option '{name}'") as said:
            await agent.run("Hi.", **{name: "x"})
        assert said[0].filename == __file__

    async def test_values_of_the_program_s_own_are_not(self) -> None:
        agent = FunctionAgent(llm=ScriptedLLM(["Hello."]))
        assert str(await agent.run("Hi.", user="Ann", memory_id=3, locale="de", run_id="r-1")) == "Hello."

    @pytest.mark.parametrize("name", ["timeout", "store", "max_handoffs", "output_cls"])
    async def test_nor_does_an_option_of_agents_go_unnoticed(self, name: str) -> None:
        agent = FunctionAgent(llm=ScriptedLLM(["Hello."]))
        with pytest.warns(UserWarning, match=rf"changes nothing: {name} is given to FunctionAgent\(\.\.\.\)"):
            await agent.run("Hi.", **{name: 1})


class TestConversationsKeptAsData:
    @pytest.mark.parametrize("store", [None, "memory:"])
    async def test_each_turn_is_a_run_of_its_own(self, store: str | None) -> None:
        keys: list[str] = []

        def pay(to: str, idempotency_key: str) -> str:
            """Pay."""
            keys.append(idempotency_key)
            return f"paid {to}"

        llm = ScriptedLLM([tool_call("pay", to="Ann"), "Done.", tool_call("pay", to="Bob"), "Done, too."])
        agent = FunctionAgent(llm=llm, tools=[pay], store=store)
        first = agent.run("Go on.")
        assert str(await first) == "Done."
        ctx = Context.from_dict(agent, first.ctx.to_dict())
        second = agent.run("Go on.", ctx=ctx)
        assert str(await second) == "Done, too."
        assert first.run_id != second.run_id
        assert len(set(keys)) == 2

    async def test_a_recorded_run_can_be_gone_on_from(self) -> None:
        store = MemoryStore()

        def agent(*says: str) -> FunctionAgent:
            return FunctionAgent(llm=ScriptedLLM(list(says)), store=store)

        await agent("One.").run("First?", run_id="ann-1")
        # In another process, as it were.
        handler = agent().resume("ann-1")
        assert str(await handler) == "One."
        asks = agent("Two.")
        assert str(await asks.run("Second?", ctx=handler.ctx, run_id="ann-2")) == "Two."
        [request] = asks.llm.requests
        assert [message.content for message in request.messages] == ["First?", "One.", "Second?"]
