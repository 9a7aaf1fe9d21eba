"""ReActAgent: reasoning and acting in text."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonflow.agents import (
    AgentInput,
    AgentStream,
    AgentWorkflow,
    BaseWorkflowAgent,
    Budget,
    FunctionAgent,
    ReActAgent,
    ToolCall,
    ToolCallResult,
)
from batonflow.agents.memory import Memory, StaticMemoryBlock
from batonflow.agents.memory.turns import cuts
from batonflow.agents.react import _Splitter  # pyright: ignore[reportPrivateUsage]
from batonflow.llms import ChatMessage, CitableBlock, ImageBlock, ScriptedLLM
from batonflow.llms.anthropic import anthropic_messages
from batonflow.llms.prompts import PromptTemplate
from batonflow.llms.react_text import ReActChatFormatter
from batonflow.tools import FunctionTool
from batonflow.workflow_core import Context, WorkflowRuntimeError
from tests.agents.unread import Cumulative, held_by_a_stream
from tests.llms.rules import check_anthropic

ADD = 'Thought: I need to add.\nAction: add\nAction Input: {"a": 2, "b": 40}'
ANSWER = "Thought: I can answer without any more tools.\nAnswer: It is 42."


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def agent(*turns: Any, **options: Any) -> ReActAgent:
    return ReActAgent(llm=ScriptedLLM(turns), tools=[add], **options)


def requests(made: BaseWorkflowAgent) -> list[Any]:
    assert isinstance(made.llm, ScriptedLLM)
    return made.llm.requests


async def events_of(made: ReActAgent, message: str, **options: Any) -> tuple[list[Any], Any]:
    handler = made.run(message, **options)
    events = [event async for event in handler.stream_events()]
    return events, await handler


class TestTheLoop:
    @pytest.mark.parametrize("streaming", [True, False])
    async def test_an_action_is_run_and_shown_and_the_answer_is_only_the_answer(self, streaming: bool) -> None:
        made = agent(ADD, ANSWER, streaming=streaming)
        events, output = await events_of(made, "What is 2 + 40?")
        assert str(output) == "It is 42."
        (result,) = [event for event in events if isinstance(event, ToolCallResult)]
        assert (result.tool_kwargs, result.tool_output.content) == ({"a": 2, "b": 40}, "42")
        second = requests(made)[1]
        assert list(second.tools) == []
        assert [message.content for message in second.messages[-2:]][-1] == "Observation: 42"

    async def test_the_model_is_told_of_its_tools_and_of_the_system_prompt(self) -> None:
        made = agent(ANSWER, system_prompt="You work for a port.")
        events, _ = await events_of(made, "Hello?")
        header = requests(made)[0].messages[0]
        assert header.role == "system"
        assert all(text in header.content for text in ("add", "Add two numbers.", "You work for a port."))
        assert sum(message.role == "system" for message in requests(made)[0].messages) == 1
        shown = next(event for event in events if isinstance(event, AgentInput))
        assert shown.input[0].content == header.content

    async def test_values_of_a_partly_formatted_header_are_in_it(self) -> None:
        made = agent(ANSWER, system_prompt="Be brief.")
        header = PromptTemplate("You are {who}, see {{who}}. {tool_desc} {tool_names} {context}")
        made.update_prompts({"react_header": header.partial_format(who="the {pilot}")})
        await made.run("Hello?")
        shown = requests(made)[0].messages[0].content
        assert shown.startswith("You are the {pilot}, see {who}. Tool: add")
        assert shown.endswith("Be brief.")
        assert made.get_prompts()["react_header"].known_values() == {"who": "the {pilot}"}

    @pytest.mark.parametrize(
        "written", ['{"action": "add", "action_input": {"a": 2, "b": 40}}', "1. " + ADD, "- " + ADD]
    )
    async def test_an_action_is_not_streamed_as_an_answer(self, written: str) -> None:
        events, output = await events_of(agent(written, ANSWER), "What is 2 + 40?")
        text = "".join(event.delta for event in events if isinstance(event, AgentStream))
        assert (text, str(output)) == ("It is 42.", "It is 42.")

    @pytest.mark.parametrize(
        "written",
        [
            "\u601d\u8003\uff1aI know.\n\u6700\u7ec8\u7b54\u6848\uff1aIt is 42.",
            "Thought 2: I know.\nAnswer 2: It is 42.",
            "1. Thought: I know.\n2. Final Answer: It is 42.",
            "Thought: I know.\r\nAnswer: It is 42.",
        ],
    )
    async def test_of_an_answer_in_other_labels_only_the_answer_is_streamed(self, written: str) -> None:
        events, output = await events_of(agent(written), "What is 2 + 40?")
        text = "".join(event.delta for event in events if isinstance(event, AgentStream))
        assert (text, str(output)) == ("It is 42.", "It is 42.")

    @pytest.mark.parametrize(
        "written",
        [
            '**Thought:** I add.\n**Action:** add\n**Action Input:** {"a": 2, "b": 40}',
            'thought: I add.\naction: add\naction input: {"a": 2, "b": 40}',
            "THOUGHT: I add.\nACTION: add\nACTION INPUT: {'a': 2, 'b': 40}",
            ADD + "\nObservation: 7\nThought: So it is 7.\nAnswer: 7",
            ADD + '\nThought: And more.\nAction: add\nAction Input: {"a": 1, "b": 1}',
        ],
        ids=["markdown", "small letters", "capitals and a dict of Python", "a made-up observation", "several actions"],
    )
    async def test_actions_as_models_write_them(self, written: str) -> None:
        events, output = await events_of(agent(written, ANSWER), "What is 2 + 40?")
        results = [event.tool_output.content for event in events if isinstance(event, ToolCallResult)]
        assert (results, str(output)) == (["42"], "It is 42.")

    async def test_a_direct_tool_is_the_answer(self) -> None:
        made = ReActAgent(llm=ScriptedLLM([ADD]), tools=[FunctionTool.from_defaults(add, return_direct=True)])
        assert str(await made.run("2 + 40?")) == "42"

    @pytest.mark.parametrize("direct", [True, False])
    async def test_of_a_picture_the_model_reads_that_it_is_there(self, direct: bool) -> None:
        def draw() -> list[Any]:
            """Draw the tides."""
            return [CitableBlock(title="t", source="s", content="The tides:"), ImageBlock(image=b"GIF89a")]

        call = "Thought: I draw.\nAction: draw\nAction Input: {}"
        tool = FunctionTool.from_defaults(draw, return_direct=direct)
        made = ReActAgent(llm=ScriptedLLM([call, ANSWER]), tools=[tool])
        answer = await made.run("Draw!")
        if direct:
            assert str(answer) == "The tides:\n[picture, image/gif]"
            assert isinstance(answer.response.blocks[-1], ImageBlock)
        else:
            assert requests(made)[1].messages[-1].content == "Observation: The tides:\n[picture, image/gif]"


class TestUnreadable:
    @pytest.mark.parametrize(
        ("written", "words"),
        [
            ("", "FAILURE: Your previous response was empty"),
            ("<think>Hm.</think>\n", "FAILURE: Your previous response was empty"),
            ("<think>Two and 40, that", "FAILURE: Your previous response was empty"),
            ("Thought: Hm.\nAction: add\nAction Input: nothing", "Error while parsing the output"),
        ],
    )
    async def test_the_model_is_told_and_tries_again(self, written: str, words: str) -> None:
        made = agent(written, ANSWER)
        assert str(await made.run("2 + 40?")) == "It is 42."
        last = requests(made)[1].messages[-1]
        assert words in last.content
        assert (last.role, "Thought:" in last.content) == ("user", True)

    async def test_it_is_told_behind_the_steps_that_came_before(self) -> None:
        made = agent(ADD, "no form\nAction: add", ANSWER)
        await made.run("What is 2 + 40?")
        said = [message.content for message in requests(made)[-1].messages[1:]]
        assert [said[0], *said[2:4]] == ["What is 2 + 40?", "Observation: 42", "no form\nAction: add"]
        assert said[4].startswith("Error while parsing the output")

    async def test_so_many_times_in_a_row_and_no_more(self) -> None:
        with pytest.raises(WorkflowRuntimeError, match=r"(?s)3 times in a row.*FAILURE"):
            await agent("", "", "", max_parse_retries=2).run("2 + 40?")

    async def test_the_next_run_counts_anew(self) -> None:
        made = agent("", "", "", ANSWER, max_parse_retries=1)
        ctx: Context[Any] = Context(made)
        with pytest.raises(WorkflowRuntimeError, match="2 times in a row"):
            await made.run("2 + 40?", ctx=ctx)
        assert str(await made.run("2 + 40?", ctx=ctx)) == "It is 42."

    async def test_the_next_run_counts_anew_after_one_that_stopped_early(self) -> None:
        made = agent("", "Forty-two.", "", ANSWER, max_parse_retries=1)
        ctx: Context[Any] = Context(made)
        await made.run("2 + 40?", ctx=ctx, max_iterations=1, early_stopping_method="generate")
        assert str(await made.run("2 + 40?", ctx=ctx)) == "It is 42."

    async def test_a_readable_message_between_them_counts_anew(self) -> None:
        made = agent("", ADD, "", ANSWER, max_parse_retries=1)
        assert str(await made.run("2 + 40?")) == "It is 42."


class TestMemory:
    async def test_the_turn_is_remembered_with_its_thoughts_and_the_next_begins_fresh(self) -> None:
        made = agent(ADD, ANSWER, "Thought: I know.\nAnswer: Still 42.")
        ctx: Context[Any] = Context(made)
        await made.run("What is 2 + 40?", ctx=ctx)
        output = await made.run("Sure?", ctx=Context.from_dict(made, ctx.to_dict()))
        assert str(output) == "Still 42."
        remembered = requests(made)[2].messages
        assert [message.role.value for message in remembered] == ["system", "user", "assistant", "user"]
        assert "I need to add." in remembered[2].content
        assert "Observation: 42" in remembered[2].content

    async def test_generate_answers_from_what_was_found(self) -> None:
        made = agent(ADD, ADD, "Forty-two.")
        output = await made.run("2 + 40?", max_iterations=2, early_stopping_method="generate")
        assert str(output) == "Forty-two."
        shown = requests(made)[2].messages
        assert any("Observation: 42" in (message.content or "") for message in shown)
        check_anthropic({"messages": anthropic_messages(shown)[1]})

    @pytest.mark.parametrize("streaming", [True, False])
    @pytest.mark.parametrize(
        "limit",
        [
            {"max_iterations": 2, "early_stopping_method": "generate"},
            {"budget": Budget(max_tool_calls=1, on_exceeded="answer")},
        ],
        ids=["steps", "budget"],
    )
    async def test_of_a_last_answer_in_the_form_only_the_answer_is_kept(
        self, limit: dict[str, Any], streaming: bool
    ) -> None:
        made = agent(ADD, ADD, ANSWER, streaming=streaming)
        ctx: Context[Any] = Context(made)
        events, output = await events_of(made, "2 + 40?", ctx=ctx, **limit)
        assert str(output) == "It is 42."
        memory = await ctx.store.get("memory")
        assert (await memory.aget_all())[-1].content == "It is 42."
        told = "".join(event.delta for event in events if isinstance(event, AgentStream))
        assert told == ("It is 42." if streaming else "")

    async def test_guards_of_a_last_answer_see_only_the_answer(self) -> None:
        seen: list[str | None] = []
        made = agent(ADD, ANSWER, output_guards=[lambda _ctx, message: seen.append(message.content)])
        await made.run("2 + 40?", max_iterations=1, early_stopping_method="generate")
        assert seen == ["It is 42."]

    @pytest.mark.parametrize("written", ["Thought: I am not done.", "", ADD])
    async def test_a_last_answer_that_is_none_stays_as_it_is(self, written: str) -> None:
        made = agent(ADD, written)
        assert str(await made.run("2 + 40?", max_iterations=1, early_stopping_method="generate")) == written

    async def test_a_turn_that_is_handed_over_ends_with_what_was_observed(self) -> None:
        hand_over = 'Thought: Ben knows.\nAction: handoff\nAction Input: {"to_agent": "ben", "reason": "sums"}'
        ann = agent(ADD, hand_over, ANSWER, name="ann", description="Adds.")
        ben = FunctionAgent(name="ben", description="Sums up.", llm=ScriptedLLM(["42, then."]))
        team = AgentWorkflow(agents=[ann, ben], root_agent="ann")
        ctx: Context[Any] = Context(team)
        assert str(await team.run("2 + 40?", ctx=ctx)) == "42, then."
        (shown,) = (request.messages for request in requests(ben))
        assert [message.role.value for message in shown] == ["user", "assistant", "user", "assistant", "user"]
        assert shown[:3] == requests(ann)[1].messages[1:], "as it was shown before"
        assert "Observation:" in str(shown[-1].content)
        assert all(message.additional_kwargs == {} for message in shown)
        check_anthropic({"messages": anthropic_messages(shown)[1]})
        memory = await ctx.store.get("memory")
        assert cuts([*await memory.aget_all(), ChatMessage("And now?")]) == [6], "an observation begins no turn"

    async def test_a_system_message_of_the_memory_s_is_shown_beside_the_header(self) -> None:
        memory = Memory.from_defaults(memory_blocks=[StaticMemoryBlock(name="user", static_content="Ann")])
        for prompt in (None, "Be brief."):
            made = agent(ANSWER, system_prompt=prompt)
            await made.run("Who am I?", memory=memory)
            header, known, *_ = requests(made)[0].messages
            assert (header.role.value, known.role.value) == ("system", "system")
            assert str(known.content) == "<memory>\n<user>\nAnn\n</user>\n</memory>"


class TestStream:
    async def test_thoughts_are_streamed_as_thinking_and_the_answer_as_text(self) -> None:
        events, _ = await events_of(agent(ADD, ANSWER), "2 + 40?")
        pieces = [event for event in events if isinstance(event, AgentStream)]
        thought = "".join(piece.thinking_delta or "" for piece in pieces)
        assert "".join(piece.delta for piece in pieces) == "It is 42."
        assert "I need to add." in thought
        assert "Answer" not in thought

    async def test_a_model_may_give_pieces_only(self) -> None:
        events, output = await events_of(ReActAgent(llm=Cumulative(text=ANSWER, bare=True)), "2 + 40?")
        pieces = [event.delta for event in events if isinstance(event, AgentStream)]
        assert "".join(pieces) == str(output) == "It is 42."

    async def test_a_text_without_labels_is_an_answer_as_a_whole(self) -> None:
        events, output = await events_of(agent("It is simply 42, I think."), "2 + 40?")
        pieces = [event for event in events if isinstance(event, AgentStream)]
        assert "".join(piece.delta for piece in pieces) == str(output) == "It is simply 42, I think."
        assert all(piece.thinking_delta is None for piece in pieces)

    @pytest.mark.parametrize(
        ("before", "thought"),
        [
            ("Sure! Let me see.\nThought: I know.", "Sure! Let me see.\nThought: I know."),
            ("<think>Two and\n40.</think>\n\nThought: I know.", "<think>Two and\n40.</think>\n\nThought: I know."),
            ("<think>Two and 40.</think>", "<think>Two and 40.</think>"),
            ("```\nThought: I know.", "```\nThought: I know."),
            ("Answer: 41\nThought: No, I know.", "Answer: 41\nThought: No, I know."),
        ],
    )
    async def test_what_stands_before_the_first_label_is_no_answer(self, before: str, thought: str) -> None:
        events, output = await events_of(agent(f"{before}\nAnswer: 42"), "2 + 40?")
        pieces = [event for event in events if isinstance(event, AgentStream)]
        assert "".join(piece.delta for piece in pieces) == str(output) == "42"
        assert "".join(piece.thinking_delta or "" for piece in pieces) == thought

    async def test_an_action_that_is_thought_of_aloud_is_not_taken(self) -> None:
        said = '<think>\nAction: add\nAction Input: {"a": 1, "b": 1}\n</think>\nThought: I know.\nAnswer: 42'
        events, output = await events_of(agent(said), "2 + 40?")
        assert str(output) == "42"
        assert not [event for event in events if isinstance(event, ToolCall)]

    async def test_an_action_after_a_preamble_is_no_answer(self) -> None:
        first = 'Let me add them:\nThought: I add.\nAction: add\nAction Input: {"a": 2, "b": 40}'
        events, _ = await events_of(agent(first, "Thought: I know.\nAnswer: 42"), "2 + 40?")
        assert "".join(event.delta for event in events if isinstance(event, AgentStream)) == "42"

    @pytest.mark.parametrize("text", ["Action films are fine.", "<think>Hm.</think>It is 42.", "tide " * 200])
    async def test_a_text_in_no_form_is_streamed_as_the_answer(self, text: str) -> None:
        events, output = await events_of(agent(text), "2 + 40?")
        said = "".join(event.delta for event in events if isinstance(event, AgentStream))
        assert said == str(output) == text.removeprefix("<think>Hm.</think>")

    @given(st.data())
    def test_however_the_text_is_cut(self, data: st.DataObject) -> None:
        thought = data.draw(st.sampled_from(["Thought: I see.", "Thought: a\nb answer: no", "**Thought:** x y z"]))
        label = data.draw(st.sampled_from(["\nAnswer: ", "\n**Answer:** ", "\nFinal Answer:\n", "\nanswer: "]))
        answer = data.draw(st.text(min_size=1).filter(lambda text: text == text.strip() and text[0] not in "*_ :"))
        text = thought + label + answer
        cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
        splitter = _Splitter()
        told = [splitter.feed(text[start:end]) for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        told.append(splitter.rest())
        assert ("".join(one for one, _ in told), "".join(one for _, one in told)) == (thought, answer)


def test_the_header_can_be_exchanged() -> None:
    made = agent()
    assert "{tool_desc}" in made.get_prompts()["react_header"].get_template()
    made.update_prompts({"react_header": PromptTemplate("Tools: {tool_desc} {tool_names}")})
    assert made.formatter.system_header == "Tools: {tool_desc} {tool_names}"


def test_a_header_of_one_s_own_is_kept_beside_a_system_prompt() -> None:
    formatter = ReActChatFormatter.from_defaults(system_header="Mine. {tool_desc} {tool_names}", context="A port.")
    made = agent(formatter=formatter, system_prompt="Be brief.")
    assert (made.formatter.system_header, made.formatter.context) == (formatter.system_header, "A port.\nBe brief.")


class TestUnreadStreams:
    async def test_memory_grows_with_the_text_and_not_with_its_square(self) -> None:
        async def grown(pieces: int) -> int:
            made = ReActAgent(llm=ScriptedLLM(["Thought: So.\nAnswer: " + "tide " * pieces], chunk_size=5))
            return await held_by_a_stream(made, pieces)

        await grown(100)
        few, many = await grown(1_000), await grown(8_000)
        assert many < 10 * few

    async def test_of_a_model_that_makes_its_messages_itself(self) -> None:
        async def grown(pieces: int) -> int:
            made = ReActAgent(llm=Cumulative(text="Thought: So.\nAnswer: " + "tide " * pieces))
            return await held_by_a_stream(made, pieces)

        await grown(100)
        few, many = await grown(1_000), await grown(8_000)
        assert many < 10 * few

    async def test_each_piece_tells_the_text_so_far(self) -> None:
        text = "Thought: So.\nAnswer: It is 42, all told."
        for llm in (ScriptedLLM([text], chunk_size=5), Cumulative(text=text)):
            events, _ = await events_of(ReActAgent(llm=llm), "go")
            told = [event.response for event in events if isinstance(event, AgentStream)]
            assert all(text.startswith(one) for one in told)
            assert told == sorted(told, key=len)
            assert (told[0], told[-1]) != (text, "")
            assert told[-1] == text
