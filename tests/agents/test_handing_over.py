"""What a handoff carries when each agent has a conversation of its own, and what nothing of it may get lost."""

import asyncio
import json
from typing import Any

import pytest
from pydantic import Field

from batonflow.agents import AgentWorkflow, FunctionAgent
from batonflow.agents.memory import (
    BaseMemory,
    BaseMemoryBlock,
    ChatMemoryBuffer,
    ChatSummaryMemoryBuffer,
    Memory,
    StaticMemoryBlock,
)
from batonflow.llms import ChatMessage, ImageBlock, ScriptedLLM, TextBlock, tool_call
from batonflow.tools import tool
from batonflow.workflow_core import Context, WorkflowFailedEvent

MODES = pytest.mark.parametrize("carries", ["full", "own", "summary"])


@tool(return_direct=True)
def total(of: int) -> str:
    """Add it all up."""
    return f"total {of}"


def handoff(to: str, reason: str = "it knows better") -> Any:
    return tool_call("handoff", to_agent=to, reason=reason)


def agent(name: str, *turns: Any, **options: Any) -> FunctionAgent:
    return FunctionAgent(name=name, description=f"The {name}.", llm=ScriptedLLM(turns), **options)


def shown(member: FunctionAgent, request: int = 0) -> list[ChatMessage]:
    llm = member.llm
    assert isinstance(llm, ScriptedLLM)
    return list(llm.requests[request].messages)


def words(messages: list[ChatMessage]) -> str:
    return "\n".join(message.content or "" for message in messages)


def pair(*turns: Any, carries: Any, **options: Any) -> tuple[AgentWorkflow, FunctionAgent, FunctionAgent]:
    first, second = agent("first", *turns), agent("second", "Done.")
    team = AgentWorkflow(agents=[first, second], root_agent="first", handoff_carries=carries, **options)
    return team, first, second


class Learning(BaseMemoryBlock[str]):
    """Learns every text that it is given."""

    learnt: list[str] = Field(default_factory=list[str])

    async def _aget(self, messages: list[ChatMessage] | None = None, **block_kwargs: Any) -> str:
        return ""

    async def _aput(self, messages: list[ChatMessage]) -> None:
        self.learnt += [(message.content or "")[:6] for message in messages]


class TestTheTask:
    @MODES
    async def test_pictures_and_the_state_go_along(self, carries: Any) -> None:
        team, _, second = pair(handoff("second"), "A summary.", carries=carries, initial_state={"customer": "Ann"})
        await team.run(ChatMessage([TextBlock(text="What is on it?"), ImageBlock(url="https://x.test/a.png")]))
        told = shown(second)
        assert any(isinstance(block, ImageBlock) for message in told for block in message.blocks)
        assert "{'customer': 'Ann'}" in words(told)

    async def test_the_reason_is_that_of_the_handoff_that_was_made(self) -> None:
        first, second = agent("first", [handoff("second", "one"), handoff("third", "two")]), agent("second", "Done.")
        team = AgentWorkflow(agents=[first, second, agent("third")], root_agent="first", handoff_carries="own")
        await team.run("Go.")
        assert "for this reason: one" in words(shown(second))

    async def test_it_stays_with_the_agent_whose_summary_fails(self) -> None:
        team, first, second = pair(handoff("second"), RuntimeError("too many requests"), "Here.", carries="summary")
        ctx = Context[Any](team)
        with pytest.raises(RuntimeError, match="too many requests"):
            await team.run("Book a flight to Rome.", ctx=ctx)
        assert str(await team.run("Try again.", ctx=ctx)) == "Here."
        assert "Book a flight to Rome." in words(shown(first, -1))
        assert isinstance(second.llm, ScriptedLLM)
        assert not second.llm.requests

    @pytest.mark.parametrize("kept_as", ["context", "snapshot"])
    async def test_an_interruption_while_the_summary_is_made_loses_nothing(self, kept_as: str) -> None:
        asked = asyncio.Event()

        async def never(_: Any) -> str:
            asked.set()
            await asyncio.Event().wait()
            return ""

        team, _, second = pair(handoff("second"), never, "A summary.", carries="summary")
        handler = team.run("Book a flight to Rome.")
        await asked.wait()
        saved = json.loads(json.dumps(handler.ctx.to_dict()))
        await handler.cancel_run()
        ctx = handler.ctx if kept_as == "context" else Context[Any].from_dict(team, saved)
        assert str(await team.run(ctx=ctx)) == "Done."
        assert len(shown(second)) == 1
        assert "Book a flight to Rome." in words(shown(second))
        assert "A summary." in words(shown(second))

    async def test_a_handoff_beside_the_answer_of_a_direct_tool_counts_for_the_next_run(self) -> None:
        first = agent("first", [tool_call("total", of=5), handoff("second")], tools=[total])
        team = AgentWorkflow(agents=[first, agent("second", "Hi.")], root_agent="first")
        ctx = Context[Any](team)
        output = await team.run("Add up.", ctx=ctx)
        assert (str(output), output.current_agent_name) == ("total 5", "first")
        assert (await team.run("And now?", ctx=ctx)).current_agent_name == "second"

    @pytest.mark.parametrize("carries", ["own", "summary"])
    async def test_but_not_where_only_a_task_would_be_handed_over(self, carries: Any) -> None:
        first = agent("first", [tool_call("total", of=5), handoff("second")], "I am here.", tools=[total])
        team = AgentWorkflow(agents=[first, agent("second")], root_agent="first", handoff_carries=carries)
        ctx = Context[Any](team)
        assert str(await team.run("Add up.", ctx=ctx)) == "total 5"
        assert str(await team.run("And now?", ctx=ctx)) == "I am here."


class TestMemories:
    @MODES
    async def test_what_blocks_know_every_agent_knows(self, carries: Any) -> None:
        team, first, second = pair(handoff("second"), "A summary.", carries=carries)
        block = StaticMemoryBlock(name="about", static_content="Ann is allergic to nuts.")
        await team.run("Dinner?", memory=Memory.from_defaults(memory_blocks=[block]))
        assert all("allergic" in words(shown(one)) for one in (first, second))

    @MODES
    @pytest.mark.parametrize("kind", [ChatMemoryBuffer, ChatSummaryMemoryBuffer])
    async def test_limits_and_summaries_hold_for_every_agent(self, carries: Any, kind: Any) -> None:
        memory = kind.from_defaults(llm=ScriptedLLM(["What was before."] * 9), token_limit=30)
        for number in range(20):
            memory.put_messages([ChatMessage(f"old {number} {'x' * 60}"), ChatMessage("ok", role="assistant")])
        team, first, _ = pair("Done.", carries=carries)
        await team.run("New?", memory=memory)
        assert len(shown(first)) < 6
        assert ("What was before." in words(shown(first))) == (kind is ChatSummaryMemoryBuffer)

    @MODES
    async def test_blocks_learn_once_what_the_user_and_the_team_have_said(self, carries: Any) -> None:
        block, saved = Learning(name="facts"), ""
        memory = Memory.from_defaults(memory_blocks=[block], token_limit=40, token_flush_size=5)
        memory.put_messages([ChatMessage(f"fact {number} {'x' * 60}") for number in range(4)])
        for number in range(4, 8):
            team, _, _ = pair("Noted.", carries=carries)
            ctx = Context[Any].from_dict(team, json.loads(saved)) if saved else Context[Any](team)
            options = {} if saved else {"memory": memory}
            await team.run(f"fact {number} {'x' * 60}", ctx=ctx, **options)
            saved = json.dumps(ctx.to_dict())
            memory = await ctx.store.get("memory")
        [block] = memory.memory_blocks
        assert isinstance(block, Learning)
        learnt = [text for text in block.learnt if text.startswith("fact")]
        assert learnt == sorted(set(learnt))
        assert len(learnt) >= 4

    async def test_without_a_memory_each_agent_is_shown_what_its_own_model_takes(self) -> None:
        small, large = (ScriptedLLM(["Done."], context_window=window) for window in (100, 1000))
        agents = [
            FunctionAgent(name="first", description="First.", llm=ScriptedLLM([handoff("second")], context_window=100)),
            FunctionAgent(name="second", description="Second.", llm=large),
        ]
        ctx = Context[Any](team := AgentWorkflow(agents=agents, root_agent="first", handoff_carries="own"))
        await team.run("Go.", ctx=ctx)
        limits = {name: one.token_limit for name, one in (await ctx.store.get("memories")).items()}
        assert limits == {"first": 75, "second": 750}
        assert small.metadata.context_window == 100

    async def test_a_memory_that_was_emptied_is_another_conversation(self) -> None:
        llm = ScriptedLLM(["Hello.", "Nobody."])
        first = FunctionAgent(name="first", description="First.", llm=llm)
        team = AgentWorkflow(agents=[first, agent("second")], root_agent="first", handoff_carries="own")
        ctx, memory = Context[Any](team), ChatMemoryBuffer.from_defaults()
        await team.run("My PIN is 1234.", ctx=ctx, memory=memory)
        memory.reset()
        await team.run("Who am I?", ctx=ctx, memory=memory)
        assert words(shown(first, 1)) == "Who am I?"

    async def test_a_class_of_ones_own_that_says_nothing_of_conversations_is_left_alone(self) -> None:
        class Mine(ChatMemoryBuffer):
            def __init__(self, user: str, **options: Any) -> None:
                super().__init__(**options, chat_store_key=user)

        team, first, _ = pair("Done.", carries="own")
        memory = Mine("ann")
        memory.put(ChatMessage("I am Ann."))
        await team.run("Who am I?", memory=memory)
        assert words(shown(first)) == "I am Ann.\nWho am I?"
        assert [message.content for message in memory.get_all()] == ["I am Ann.", "Who am I?", "Done."]

    @pytest.mark.parametrize("kind", [ChatMemoryBuffer, ChatSummaryMemoryBuffer])
    def test_a_conversation_beside_another_one_begins_empty_and_apart(self, kind: type[BaseMemory]) -> None:
        memory: Any = kind.from_defaults(chat_history=[ChatMessage("hello")])
        memory.token_limit = 77
        beside = memory.new_conversation()
        assert (type(beside), beside.token_limit, beside.get_all()) == (kind, 77, [])
        beside.put(ChatMessage("there"))
        assert [message.content for message in memory.get_all()] == ["hello"]

    async def test_what_falls_out_of_what_blocks_learn_from_is_still_shown(self) -> None:
        @tool
        def look() -> str:
            """Look."""
            return "seen " * 400

        turns = [turn for _ in range(4) for turn in (tool_call("look"), "Seen.")]
        first = agent("first", *turns, tools=[look])
        team = AgentWorkflow(agents=[first, agent("second")], root_agent="first", handoff_carries="own")
        ctx, block = Context[Any](team), Learning(name="facts")
        memory: Any = Memory.from_defaults(memory_blocks=[block], token_limit=1500)
        for said in ("My name is Ann.", "Look!", "Look!", "Who am I?"):
            await team.run(said, ctx=ctx, **({"memory": memory} if memory else {}))
            memory = None
        assert "My name is Ann." in words(shown(first, -1))

    async def test_a_memory_that_only_looks_like_one_will_do(self) -> None:
        class Duck:
            def __init__(self) -> None:
                self.said: list[ChatMessage] = []

            async def aput(self, message: ChatMessage) -> None:
                self.said.append(message)

            async def aget(self, **options: Any) -> list[ChatMessage]:
                return list(self.said)

            aget_all = aget

            async def aput_messages(self, messages: list[ChatMessage]) -> None:
                self.said += messages

        team, first, _ = pair("Done.", carries="own")
        assert str(await team.run("Hello.", memory=Duck())) == "Done."  # type: ignore[arg-type]
        assert words(shown(first)) == "Hello."

    async def test_a_summary_memory_that_comes_back_in_the_middle_is_lent_a_model(self) -> None:
        @tool(requires_approval=True)
        def order(item: str) -> str:
            """Order it."""
            return f"ordered {item} {'y' * 300}"

        memory = ChatSummaryMemoryBuffer.from_defaults(llm=ScriptedLLM([]), token_limit=60)
        memory.put_messages([ChatMessage(f"I am Ann {'e' * 60}"), ChatMessage("ok", role="assistant")])
        first = agent("first", tool_call("order", item="x"), tools=[order])
        handler = AgentWorkflow(agents=[first]).run(f"Order it {'z' * 60}", memory=memory)
        async for _ in handler.approvals():
            break
        saved = json.loads(json.dumps(handler.ctx.to_dict()))
        await handler.cancel_run()

        first = agent("first", handoff("second"), "She is Ann.", "She is Ann.", tools=[order])
        team = AgentWorkflow(agents=[first, agent("second", "Done.")], root_agent="first")
        handler = team.run(ctx=Context[Any].from_dict(team, saved))
        async for request in handler.approvals():
            request.approve()
        assert str(await handler) == "Done."
        assert (await handler.ctx.store.get("memory")).summary == "She is Ann."


async def test_a_failed_run_says_so_once() -> None:
    team, _, _ = pair(handoff("second"), RuntimeError("no"), carries="summary")
    handler = team.run("Go.")
    with pytest.raises(RuntimeError):
        await handler
    assert sum([isinstance(event, WorkflowFailedEvent) async for event in handler.stream_events()]) == 1
