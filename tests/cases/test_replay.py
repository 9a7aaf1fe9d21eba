"""Replays of cases: no model is asked, no effect happens twice, and the first difference is shown."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from batonflow import Context, FunctionAgent, ScriptedLLM, StartEvent, StopEvent, Workflow, step, tool
from batonflow.cases import Case, CaseDifferenceError, CaseError, case_of_run
from batonflow.llms import LLMServerError, tool_call
from batonflow.workflow_core import MemoryStore
from tests.cases.runs import Ask, Charges, Part, agent_of, depth, done, pay, saved


async def differs(case: Any, workflow: Any, **options: Any) -> str:
    """The text of the first difference."""
    with pytest.raises(CaseDifferenceError) as caught:
        await case.replay(workflow, **options)
    return str(caught.value)


class Silent(ScriptedLLM):
    """A model that must not be asked."""

    async def _stream(self, request: Any) -> Any:
        raise AssertionError("the model was asked")
        yield


async def test_an_agent_answers_from_its_case_without_model_and_tools(tmp_path: Path) -> None:
    case = await saved(agent_of(), tmp_path, user_msg="How deep is Emden?")
    agent = agent_of()
    agent.llm = Silent([])
    assert str(await case.replay(agent)) == "Eight metres."
    assert str(await case.replay(agent)) == "Eight metres."
    assert done == []


async def test_a_case_says_what_it_holds(tmp_path: Path) -> None:
    case = await saved(agent_of(), tmp_path, user_msg="How deep is Emden?")
    assert (case.name, case.workflow, case.input) == ("run-1", "harbours", {"user_msg": "How deep is Emden?"})
    first, second = case.calls
    assert [tool.name for tool in first.tool_specs] == ["depth", "pay"]
    assert [message.content for message in second.messages][-1] == "eight metres"
    assert (second.answer.content, second.purpose, second.usage.output_tokens) == ("Eight metres.", "turn", 2)
    assert case.result["response"]["blocks"] == [{"block_type": "text", "text": "Eight metres."}]


async def test_each_message_is_written_once(tmp_path: Path) -> None:
    turns = [*(tool_call("depth", harbour=str(number)) for number in range(5)), "Deep."]
    await saved(agent_of(*turns), tmp_path, user_msg="A question that is asked once.")
    text = json.loads((tmp_path / "run-1.json").read_text())
    assert json.dumps(text["messages"]).count("A question that is asked once.") == 1
    assert len(text["tools"]) == 2


async def test_another_prompt_is_shown_as_lines(tmp_path: Path) -> None:
    case = await saved(agent_of(prompt="You know harbours.\nBe short."), tmp_path, user_msg="How deep?")
    assert await differs(case, agent_of(prompt="You know harbours.\nBe polite.")) == (
        "case run-1: call 1 of 2 (agent Agent) differs in message 1 (system)\n"
        "--- case\n+++ run\n@@ -1,2 +1,2 @@\n You know harbours.\n-Be short.\n+Be polite."
    )


async def test_another_schema_is_shown(tmp_path: Path) -> None:
    def deep(harbour: str, unit: str = "m") -> str:
        """Measure the depth."""
        return "eight metres"

    deep.__name__ = "depth"
    case = await saved(agent_of(), tmp_path, user_msg="How deep?")
    text = await differs(case, agent_of(tools=[deep, pay]))
    assert text.startswith("case run-1: call 1 of 2 (agent Agent) differs in tool depth\n")
    assert '+      "unit": {' in text


async def test_another_option_and_a_missing_tool_are_shown(tmp_path: Path) -> None:
    case = await saved(agent_of(), tmp_path, user_msg="How deep?")
    assert "differs in tool pay" in await differs(case, agent_of(tools=[depth]))
    assert "differs in option tool_choice" in await differs(case, agent_of(tool_choice="required"))


async def test_texts_can_be_ignored(tmp_path: Path) -> None:
    case = await saved(agent_of(prompt="Today is 2026-01-02."), tmp_path, user_msg="How deep?")
    today = agent_of(prompt="Today is 2027-03-04.")
    assert "2027-03-04" in await differs(case, today)
    assert str(await case.replay(today, ignore=[r"\d{4}-\d\d-\d\d"])) == "Eight metres."


async def test_a_result_that_the_code_makes_differently_is_shown(tmp_path: Path) -> None:
    class Greet(Workflow):
        word = "hello"

        @step
        async def greet(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result={"text": f"{self.word} {ev.name}", "size": 1})

    class GreetAgain(Greet):
        word = "good morning"

    case = await saved(Greet(), tmp_path, name="Ann")
    assert await case.replay(Greet()) == {"text": "hello Ann", "size": 1}
    text = await differs(case, GreetAgain())
    assert text.startswith("case run-1: the result differs\n--- case\n+++ run\n")
    assert '-  "text": "hello Ann"\n+  "text": "good morning Ann"' in text


async def test_a_call_more_and_a_call_less_are_differences(tmp_path: Path) -> None:
    llm = ScriptedLLM([lambda request: "yes"] * 9)

    class Asks(Workflow):
        times = 2

        @step
        async def ask(self, ev: StartEvent) -> StopEvent:
            for number in range(self.times):
                await llm.acomplete(f"question {number}")
            return StopEvent(result="asked")

    class More(Asks):
        times = 3

    class Less(Asks):
        times = 1

    case = await saved(Asks(), tmp_path)
    assert await case.replay(Asks()) == "asked"
    text = await differs(case, More())
    assert "the run asks a model once more; the case holds 2 calls" in text
    assert "+question 2" in text
    assert await differs(case, Less()) == "case run-1: the run did not make call 2 of 2 to scripted"


async def test_a_run_that_fails_is_a_difference_with_its_error(tmp_path: Path) -> None:
    class Flow(Workflow):
        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result=1)

    class Broken(Flow):
        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            raise OSError("no disk")

    case = await saved(Flow(), tmp_path)
    with pytest.raises(CaseDifferenceError, match="the run failed with OSError: no disk") as caught:
        await case.replay(Broken())
    assert isinstance(caught.value.__cause__, OSError)


async def test_errors_of_models_are_replayed(tmp_path: Path) -> None:
    class Flow(Workflow):
        llm = ScriptedLLM([LLMServerError("overloaded"), "second"])

        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            try:
                return StopEvent(result=str(await self.llm.acomplete("once")))
            except LLMServerError as error:
                return StopEvent(result=[str(error), str(await self.llm.acomplete("again"))])

    case = await saved(Flow(), tmp_path)
    assert await case.replay(Flow()) == ["overloaded", "second"]


# --- tools and effects ------------------------------------------------------------------------------------------------


async def test_tools_run_for_those_who_ask_for_it(tmp_path: Path) -> None:
    case = await saved(agent_of(), tmp_path, user_msg="How deep?")
    await case.replay(agent_of(), run_tools=["depth"])
    await case.replay(agent_of(), run_tools=True)
    assert done == ["measured Emden"] * 2
    with pytest.raises(TypeError, match=r"write \['depth'\]"):
        await case.replay(agent_of(), run_tools="depth")


async def test_a_tool_that_gives_another_result_is_a_difference(tmp_path: Path) -> None:
    def shallow(harbour: str) -> str:
        """Measure the depth."""
        return "one metre"

    shallow.__name__ = "depth"
    case = await saved(agent_of(), tmp_path, user_msg="How deep?")
    text = await differs(case, agent_of(tools=[shallow, pay]), run_tools=True)
    assert "call 2 of 2 (agent Agent) differs in message 4 (tool)" in text
    assert "-eight metres\n+one metre" in text


async def approve(handler: Any) -> None:
    async for request in handler.approvals():
        request.approve()


async def deny(handler: Any) -> None:
    async for request in handler.approvals():
        request.deny("too much")


PAYS = (tool_call("pay", amount=3), lambda request: request.messages[-1].content)


async def test_an_approval_is_replayed_and_its_tool_never_runs_unnamed(tmp_path: Path) -> None:
    case = await saved(agent_of(*PAYS), tmp_path, answer=approve, user_msg="Pay.")
    assert str(await case.replay(agent_of(*PAYS))) == "paid 3"
    assert str(await case.replay(agent_of(*PAYS), run_tools=True)) == "paid 3"
    assert done == []
    await case.replay(agent_of(*PAYS), run_tools={"pay"})
    assert done == ["paid 3"]


async def test_a_denial_is_replayed(tmp_path: Path) -> None:
    case = await saved(agent_of(*PAYS), tmp_path, answer=deny, user_msg="Pay.")
    assert "too much" in str(await case.replay(agent_of(*PAYS), run_tools=True))
    assert done == []


async def test_a_question_that_the_case_does_not_hold_is_a_difference(tmp_path: Path) -> None:
    case = await saved(agent_of(), tmp_path, user_msg="How deep?")
    text = await differs(case, agent_of(tools=[tool(requires_approval=True)(depth), pay]))
    asked = 'the approval of depth({"harbour": "Emden"})'
    assert text == f"case run-1: the run waits for {asked}, which the case does not hold"


async def test_effects_of_concurrent_deliveries_get_their_own_results(tmp_path: Path) -> None:
    case = await saved(Charges(), tmp_path)
    expected = {str(number): f"receipt {number}, note {number}" for number in range(3)}
    assert await case.replay(Charges()) == expected
    assert done == []
    assert await case.replay(Charges(), effects=True) == expected
    assert done == [], "recorded effects do not happen again"


async def test_a_new_effect_is_refused(tmp_path: Path) -> None:
    class Flow(Workflow):
        pays = False

        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            if self.pays:
                await ctx.effect("charge", done.append, "charged")
            return StopEvent(result="done")

    class Pays(Flow):
        pays = True

    case = await saved(Flow(), tmp_path)
    text = await differs(case, Pays())
    assert text.startswith("case run-1: step go wants the effect 'charge', which the case does not hold")
    assert done == []
    assert await case.replay(Pays(), effects=True) == "done"
    assert done == ["charged"]


async def test_an_effect_that_is_not_made_any_more_is_a_difference(tmp_path: Path) -> None:
    class Pays(Workflow):
        pays = True

        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            if self.pays:
                await ctx.effect("charge", done.append, "charged")
            return StopEvent(result="done")

    class Forgets(Pays):
        pays = False

    case = await saved(Pays(), tmp_path)
    assert await differs(case, Forgets()) == "case run-1: the run did not make the effect 'charge' of step go"


async def test_an_effect_inside_a_tool_belongs_to_the_tool(tmp_path: Path) -> None:
    async def order(ctx: Context, item: str) -> str:
        """Order an item."""
        return await ctx.effect("order", send, item)

    def send(item: str) -> str:
        done.append(f"ordered {item}")
        return f"ordered {item}"

    turns = (tool_call("order", item="a buoy"), "Ordered.")
    case = await saved(agent_of(*turns, tools=[order]), tmp_path, user_msg="Order a buoy.")
    assert str(await case.replay(agent_of(*turns, tools=[order]))) == "Ordered."
    assert str(await case.replay(agent_of(*turns, tools=[order]), run_tools=True)) == "Ordered."
    assert done == []


async def test_replays_at_the_same_time_do_not_meet(tmp_path: Path) -> None:
    case = await saved(agent_of(), tmp_path, user_msg="How deep?")
    agent = agent_of()
    answers = await asyncio.gather(*(case.replay(agent) for _ in range(5)))
    assert [str(answer) for answer in answers] == ["Eight metres."] * 5


async def test_people_answer_as_they_did(tmp_path: Path) -> None:
    async def answer(handler: Any) -> None:
        (await anext(handler.inputs())).respond(yes=True)
        async for request in handler.inputs():
            if type(request.event).__name__ == "QuestionEvent":
                request.respond(4)
                break
        while not handler.is_waiting or handler.open_inputs():  # noqa: ASYNC110 - no event reports the wait
            await asyncio.sleep(0.01)
        handler.ctx.send_event(Part(number=7))

    case = await saved(Ask(timeout=None), tmp_path, answer=answer)
    assert await case.replay(Ask(timeout=None)) == [True, 4, 7]


async def test_an_agent_behind_a_tool_is_replayed_too(tmp_path: Path) -> None:
    def team(prompt: str = "Measure.") -> FunctionAgent:
        inner = agent_of(prompt=prompt, name="pilot", description="Measures.", workflow_name="pilot")
        return agent_of(tool_call("pilot", input="Emden?"), "It is deep.", tools=[inner.as_tool()])

    case = await saved(team(), tmp_path, user_msg="How deep?")
    assert len(case.calls) == 4
    assert str(await case.replay(team())) == "It is deep."
    assert done == []
    assert "(agent pilot) differs in message 1 (system)" in await differs(case, team("Guess."))


async def test_agents_behind_agents_are_replayed(tmp_path: Path) -> None:
    def team() -> FunctionAgent:
        pilot = agent_of(name="pilot", description="Measures.", workflow_name="pilot")
        asks = (tool_call("pilot", input="Emden?"), "Eight.")
        mate = agent_of(*asks, name="mate", description="Asks.", workflow_name="mate", tools=[pilot.as_tool()])
        return agent_of(tool_call("mate", input="Emden?"), "It is deep.", tools=[mate.as_tool()])

    case = await saved(team(), tmp_path, user_msg="How deep?")
    assert len(case.calls) == 6
    assert str(await case.replay(team())) == "It is deep."
    assert done == []


async def test_models_inside_tools_once_and_map_are_answered(tmp_path: Path) -> None:
    llm = ScriptedLLM([lambda request: f"<{request.messages[-1].content}>"] * 20)

    def look(word: str) -> str:
        """Look a word up."""
        return str(llm.complete(word))

    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            kept = await ctx.once("ask", llm.acomplete, "kept")
            several = await ctx.map(lambda word: str(llm.complete(word)), ["one", "two"])
            return StopEvent(result=[str(kept), *several])

    case = await saved(Flow(), tmp_path / "flow")
    requests = len(llm.requests)
    assert await case.replay(Flow()) == ["<kept>", "<one>", "<two>"]
    agent = agent_of(tool_call("look", word="tide"), "Found.", tools=[look])
    asks = await saved(agent, tmp_path / "agent", user_msg="Look.")
    asked = len(llm.requests)
    assert (requests, asked) == (3, 4)
    assert str(await asks.replay(agent_of(tools=[look]))) == "Found."
    assert str(await asks.replay(agent_of(tools=[look]), run_tools=True)) == "Found."
    assert len(llm.requests) == asked


async def test_a_tool_that_runs_an_agent_in_its_body_is_not_repeated(tmp_path: Path) -> None:
    def agent() -> FunctionAgent:
        pilot = agent_of(name="pilot", description="Measures.", workflow_name="pilot")

        async def report(harbour: str) -> str:
            """Report the depth."""
            answer = await pilot.run(f"How deep is {harbour}?")
            done.append("reported")
            return str(answer)

        return agent_of(tool_call("report", harbour="Emden"), "It is deep.", tools=[report], workflows={"pilot": pilot})

    case = await saved(agent(), tmp_path, user_msg="Report.")
    assert {call.agent for call in case.calls} == {"Agent", "pilot"}
    assert str(await case.replay(agent())) == "It is deep."
    assert done == []
    assert str(await case.replay(agent(), run_tools=["report"])) == "It is deep."
    assert done == ["reported"]


async def test_what_a_tool_writes_into_the_state_is_written_again(tmp_path: Path) -> None:
    async def note(ctx: Context, text: str) -> str:
        """Note a text."""
        await ctx.store.set("noted", text)
        return "noted"

    async def read(ctx: Context) -> str:
        """Read the note."""
        return await ctx.store.get("noted", default="nothing")

    def agent() -> FunctionAgent:
        return agent_of(tool_call("note", text="low tide"), tool_call("read"), "Good.", tools=[note, read])

    case = await saved(agent(), tmp_path, user_msg="Note it.")
    assert str(await case.replay(agent(), run_tools=["read"])) == "Good."


async def test_a_turn_of_a_session_has_its_conversation(tmp_path: Path) -> None:
    store = MemoryStore()
    chat = agent_of("One.", "Two.", store=store).session("ann")
    await chat.run("first")
    handler = chat.run("second")
    await handler
    case = Case.read((await case_of_run(store, handler.run_id)).write(tmp_path))
    assert case.name == "ann-2"
    assert [message.content for message in case.calls[0].messages][1:] == ["first", "One.", "second"]
    assert str(await case.replay(agent_of())) == "Two."


async def test_a_model_in_a_function_needs_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    case = await saved(agent_of(), tmp_path, user_msg="How deep?")

    def make() -> FunctionAgent:
        agent = agent_of()
        return FunctionAgent(llm="openai:gpt-5.6", system_prompt="You know harbours.", tools=agent.tools)

    assert str(await case.replay(make)) == "Eight metres."


def test_synchronous_code_replays(tmp_path: Path) -> None:
    case = asyncio.run(saved(agent_of(), tmp_path, user_msg="How deep?"))
    assert str(case.replay_sync(agent_of())) == "Eight metres."
    with pytest.raises(CaseDifferenceError, match="differs in message 1"):
        case.replay_sync(agent_of(prompt="Be brief."))


async def test_a_live_case_asks_the_model(tmp_path: Path) -> None:
    await saved(agent_of(*PAYS), tmp_path, answer=approve, user_msg="Pay.")
    case = Case.read(tmp_path / "run-1.json", live=True)
    other = agent_of("I pay.", prompt="Be bold.")
    assert str(await case.replay(other)) == "I pay."
    assert str(await case.replay(agent_of(*PAYS))) == "paid 3"
    assert "nobody can approve" in str(await case.replay(agent_of(tool_call("pay", amount=4), PAYS[1])))
    assert done == []


async def test_something_else_than_a_workflow_is_refused(tmp_path: Path) -> None:
    case = await saved(agent_of(), tmp_path, user_msg="How deep?")
    with pytest.raises(TypeError, match="takes a workflow, an agent, or a function"):
        await case.replay(lambda: 3)


class Sub(Workflow):
    @step
    async def go(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result=ev.x + 1)


class Top(Workflow):
    def __init__(self) -> None:
        super().__init__()
        self.add_workflows(sub=Sub())

    @step
    async def go(self, ctx: Context, ev: StartEvent, sub: Sub) -> StopEvent:
        return StopEvent(result=await sub.run(x=1))


async def test_a_step_that_awaits_a_child_run(tmp_path: Path) -> None:
    case = await saved(Top(), tmp_path)
    assert await case.replay(Top()) == 2


async def test_a_changed_question_is_a_difference(tmp_path: Path) -> None:
    class Asks(Workflow):
        question, kind = "Send?", bool

        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            return StopEvent(result=str(await ctx.ask(self.question, self.kind)))

    class Other(Asks):
        question = "Shall I send?"

    class Number(Asks):
        kind = int

    async def yes(handler: Any) -> None:
        async for request in handler.inputs():
            request.respond(True)

    case = await saved(Asks(), tmp_path, answer=yes)
    assert await case.replay(Asks()) == "True"
    assert "Shall I send?" in await differs(case, Other())
    assert "differs" in await differs(case, Number())
    assert await case.replay(Other(), ignore=["Shall I send|Send"]) == "True"


async def test_an_approval_that_is_not_asked_any_more_is_a_difference(tmp_path: Path) -> None:
    case = await saved(agent_of(*PAYS), tmp_path, answer=approve, user_msg="Pay.")
    text = await differs(case, agent_of(*PAYS, tools=[depth, tool(pay.real_fn)]))
    assert text == "case run-1: the run did not ask ApprovalRequired of pay, which the case answers"


async def test_another_workflow_is_refused(tmp_path: Path) -> None:
    case = await saved(agent_of(), tmp_path, user_msg="How deep?")
    with pytest.raises(TypeError, match=r"case run-1 is of a run of .* has no step that accepts it"):
        await case.replay(Sub())


@pytest.mark.parametrize(
    ("options", "error"),
    [({"ignore": "abc"}, TypeError), ({"ignore": ["("]}, ValueError), ({"run_tools": "pay"}, TypeError)],
)
async def test_options_of_a_replay_are_checked(tmp_path: Path, options: Any, error: type[Exception]) -> None:
    case = await saved(Sub(), tmp_path, x=1)
    with pytest.raises(error, match=r"ignore|run_tools"):
        await case.replay(Sub(), **options)


@pytest.mark.parametrize("part", ["run", "start", "calls", "answers"])
async def test_a_file_without_a_part_is_refused(tmp_path: Path, part: str) -> None:
    case = await saved(Sub(), tmp_path, x=1)
    (tmp_path / "broken.json").write_text(json.dumps({**case.data, part: None}))
    with pytest.raises(CaseError, match=f"broken.json has no '{part}'"):
        Case.read(tmp_path / "broken.json")
