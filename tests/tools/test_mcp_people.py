"""Progress on the stream of a run, and questions of servers as questions to a person."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from batonflow import Context, FunctionAgent
from batonflow.llms import ScriptedLLM, tool_call
from batonflow.tools import ToolOutput
from batonflow.tools.mcp import MCPElicitation, MCPElicitationResponse, MCPProgress, MCPServerError, MCPTools
from batonflow.workflow_core import StartEvent, StopEvent, Workflow, step
from batonflow.workflow_core.events import Event, HumanResponseEvent, InputRequiredEvent
from tests.tools.mcp_trial import named, served, soon, trial

# The tool that asks in the way of its era, and the era: the newer protocol answers the call with the question, the
# older one asks in the middle of it.
ERAS = [("brew", "auto"), ("brew", "legacy"), ("brew_slowly", "legacy")]


def in_eras(*tried: tuple[str, str]) -> pytest.MarkDecorator:
    """Try a test in some eras, and in ``make soak`` in all of them."""
    soak = pytest.mark.soak(only=True)
    cases = [pytest.param(*era, marks=() if era in tried else soak) for era in ERAS]
    return pytest.mark.parametrize(("tool", "protocol"), cases)


class OneCall(Workflow):
    """Calls one tool in a step."""

    def __init__(self, server: MCPTools, tool: str, **arguments: Any) -> None:
        super().__init__(timeout=None)
        self.made = (server, tool, arguments)

    @step
    async def call(self, ctx: Context, ev: StartEvent) -> StopEvent:
        server, tool, arguments = self.made
        return StopEvent(result=await (await named(server, tool)).acall(**arguments))


async def answered(handler: Any, *answers: Any) -> tuple[ToolOutput, list[Event]]:
    """The output of a run whose questions are answered one after the other, and what it streamed."""
    left, seen = list(answers), []
    async for event in handler.stream_events():
        seen.append(event)
        if isinstance(event, InputRequiredEvent):
            handler.ctx.send_event(left.pop(0)(event))
    assert left == []
    return await handler, seen


def litres(number: object) -> Any:
    return lambda question: MCPElicitationResponse(id=question.id, content={"litres": number})


def action(name: str) -> Any:
    return lambda question: MCPElicitationResponse(id=question.id, action=name)


class TestProgress:
    @pytest.mark.parametrize("protocol", ["auto", "legacy"])
    async def test_it_is_on_the_stream_of_the_step_that_calls(self, protocol: str) -> None:
        async with trial(protocol=protocol) as server:
            _, seen = await answered(OneCall(server, "work", steps=3).run())
        told = [event for event in seen if isinstance(event, MCPProgress)]
        assert [(event.tool, event.progress, event.total, event.message) for event in told] == [
            ("trial__work", number, 3.0, f"step {number}") for number in (1, 2, 3)
        ]

    async def test_over_http_as_well(self) -> None:
        async with served() as (url, _), MCPTools(url=url, namespace="far") as server:
            _, seen = await answered(OneCall(server, "work", steps=2).run())
        assert [event.progress for event in seen if isinstance(event, MCPProgress)] == [1, 2]

    async def test_without_a_step_nobody_is_told(self) -> None:
        async with trial() as server:
            assert (await (await named(server, "work")).acall(steps=2)).content == "worked"


class TestQuestions:
    @in_eras(*ERAS)
    async def test_a_person_answers_what_the_server_asks(self, tool: str, protocol: str) -> None:
        async with trial(protocol=protocol) as server:
            output, seen = await answered(OneCall(server, tool).run(), litres(2))
        (question,) = [event for event in seen if isinstance(event, MCPElicitation)]
        assert (question.server, question.tool, question.message) == ("trial", f"trial__{tool}", "How big a pot?")
        assert question.requested_schema["properties"]["litres"]["type"] == "integer"
        assert (output.content, output.is_error) == ("2 l", False)

    @in_eras(ERAS[2])
    async def test_over_http_as_well(self, tool: str, protocol: str) -> None:
        async with served() as (url, _), MCPTools(url=url, protocol=protocol) as server:
            output, _ = await answered(OneCall(server, tool).run(), litres(2))
        assert output.content == "2 l"

    async def test_an_answer_that_does_not_fit_is_asked_for_again(self) -> None:
        async with trial() as server:
            output, seen = await answered(OneCall(server, "brew").run(), litres("many"), litres(3))
        first, second = [event for event in seen if isinstance(event, MCPElicitation)]
        assert first.problem is None
        assert second.problem == "litres: 'many' is not of type 'integer'"
        assert first.id != second.id
        assert output.content == "3 l"

    @pytest.mark.parametrize("name", ["decline", pytest.param("cancel", marks=pytest.mark.soak(only=True))])
    async def test_a_person_may_refuse_to_answer(self, name: str) -> None:
        async with trial(protocol="legacy") as server:
            output, _ = await answered(OneCall(server, "brew_slowly").run(), action(name))
        assert output.content == name

    async def test_without_a_step_the_question_is_declined(self) -> None:
        async with trial(protocol="legacy") as server:
            assert (await (await named(server, "brew_slowly")).acall()).content == "decline"

    async def test_an_answer_that_does_not_come_in_time_counts_as_none(self) -> None:
        async with trial(protocol="legacy", answer_timeout=0.2) as server:
            assert (await OneCall(server, "brew_slowly").run()).content == "cancel"

    async def test_the_time_of_a_person_is_not_the_server_s(self) -> None:
        async with trial(timeout=0.7) as server:
            handler = OneCall(server, "brew").run()
            async for event in handler.stream_events():
                if isinstance(event, MCPElicitation):
                    await asyncio.sleep(1)
                    handler.ctx.send_event(litres(1)(event))
            assert (await handler).content == "1 l"

    async def test_questions_of_two_calls_at_once_are_told_apart(self) -> None:
        async with trial() as server:
            llm = ScriptedLLM([[tool_call("trial__brew"), tool_call("trial__brew")], "Both brewed."])
            agent = FunctionAgent(llm=llm, tools=await server.aget_tools())
            output, seen = await answered(agent.run("Two pots."), litres(1), litres(2))
        assert len({event.id for event in seen if isinstance(event, MCPElicitation)}) == 2
        assert sorted(call.tool_output.content for call in output.tool_calls) == ["1 l", "2 l"]

    async def test_a_question_that_could_be_that_of_another_run_is_declined(self, tmp_path: Any) -> None:
        # Over a pipe the older protocol does not say which call asks.
        async with trial(protocol="legacy") as server:
            other = OneCall(server, "hang", note=str(tmp_path / "note")).run()
            while not (tmp_path / "note").exists():  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)
            output, seen = await answered(OneCall(server, "brew_slowly").run())
            await other.cancel_run()
        assert output.content == "decline"
        assert not [event for event in seen if isinstance(event, MCPElicitation)]

    async def test_a_run_that_ends_leaves_no_question_and_no_call_behind(self) -> None:
        async with trial(protocol="legacy") as server:
            handler = OneCall(server, "brew_slowly").run()
            async for event in handler.stream_events():
                if isinstance(event, MCPElicitation):
                    await handler.cancel_run()
            assert (await (await named(server, "add")).acall(a=1)).content == "2"

    @in_eras(ERAS[0], ERAS[2])
    async def test_the_answer_may_come_to_another_process(self, tool: str, protocol: str) -> None:
        async with trial(protocol=protocol) as server:
            handler = OneCall(server, tool).run()
            async for event in handler.stream_events():
                if isinstance(event, MCPElicitation):
                    question, snapshot = event, json.loads(json.dumps(handler.ctx.to_dict()))
                    await handler.cancel_run()
        async with trial(protocol=protocol) as server:
            workflow = OneCall(server, tool)
            restored = workflow.run(ctx=Context.from_dict(workflow, snapshot))
            restored.ctx.send_event(litres(5)(question))
            output, seen = await answered(restored)
        assert output.content == "5 l"
        assert not [event for event in seen if isinstance(event, MCPElicitation)]

    async def test_a_run_that_goes_on_elsewhere_still_gives_the_question(self) -> None:
        async with trial(protocol="legacy") as server:
            handler = OneCall(server, "brew_slowly").run()
            await anext(handler.inputs())
            snapshot = json.loads(json.dumps(handler.ctx.to_dict()))
            await handler.cancel_run()
        async with trial(protocol="legacy") as server:
            workflow = OneCall(server, "brew_slowly")
            restored = workflow.run(ctx=Context.from_dict(workflow, snapshot))
            request = await anext(restored.inputs())
            assert (request.event.message, request.response_type) == ("How big a pot?", MCPElicitationResponse)
            request.respond(content={"litres": 4})
            assert (await restored).content == "4 l"

    @pytest.mark.parametrize("over_http", [False, True])
    async def test_a_server_that_asks_in_a_way_that_the_newer_protocol_has_not_is_told_of(
        self, over_http: bool
    ) -> None:
        async with served() as (url, _), MCPTools(url=url) if over_http else trial() as server:
            with pytest.raises(MCPServerError, match=r'no back-channel.*Give MCPTools protocol="legacy"'):
                await (await named(server, "brew_slowly")).acall()

    async def test_an_agent_s_person_is_asked(self) -> None:
        async with trial() as server:
            llm = ScriptedLLM([tool_call("trial__brew"), "Tea is ready."])
            output, _ = await answered(FunctionAgent(llm=llm, tool_retriever=server).run("Tea!"), litres(1))
        assert (str(output), output.tool_calls[0].tool_output.content) == ("Tea is ready.", "1 l")

    def test_the_answer_is_one_of_a_person(self) -> None:
        assert issubclass(MCPElicitationResponse, HumanResponseEvent)


class TwoCalls(Workflow):
    """Calls two tools side by side in one step."""

    def __init__(self, server: MCPTools, note: Path) -> None:
        super().__init__(timeout=None)
        self.made = (server, str(note))

    @step
    async def call(self, ctx: Context, ev: StartEvent) -> StopEvent:
        server, note = self.made
        brew, stay = await named(server, "brew_in_company"), await named(server, "stay")
        outputs = await asyncio.gather(brew.acall(note=note), stay.acall(note=note))
        return StopEvent(result=[output.content for output in outputs])


class GivenUp(TwoCalls):
    """Gives up the one call when the other one is over, and goes on for a while."""

    def __init__(self, server: MCPTools, note: Path) -> None:
        super().__init__(server, note)
        self.may_end = asyncio.Event()

    @step
    async def call(self, ctx: Context, ev: StartEvent) -> StopEvent:
        server, note = self.made
        brewing = asyncio.create_task((await named(server, "brew_in_company")).acall(note=note, stubborn=True))
        await (await named(server, "stay")).acall(note=note)
        brewing.cancel()
        await self.may_end.wait()
        return StopEvent()


class TestQuestionsOfSeveralCalls:
    """Over a pipe the older protocol does not say which of the calls under way asks."""

    def agent(self, server: MCPTools, note: Path) -> FunctionAgent:
        """Brews in the company of a call that stays as long as there is a note."""
        calls = [tool_call("trial__brew_in_company", note=str(note)), tool_call("trial__stay", note=str(note))]
        return FunctionAgent(llm=ScriptedLLM([calls, "Done."]), tool_retriever=server)

    def contents(self, output: Any) -> list[str]:
        return [call.tool_output.content for call in output.tool_calls]

    async def test_the_question_says_whose_it_may_be(self, tmp_path: Path) -> None:
        async with trial(protocol="legacy") as server:
            handler = self.agent(server, tmp_path / "note").run("Tea!")
            request = await anext(handler.inputs())
            assert request.event.tool is None
            assert request.event.tools == ["trial__brew_in_company", "trial__stay"]
            request.respond(content={"litres": 2})
            (tmp_path / "note").unlink()
            assert sorted(self.contents(await handler)) == ["2 l", "stayed"]

    async def test_two_calls_of_one_tool_are_of_that_tool(self) -> None:
        async with trial(protocol="legacy") as server:
            llm = ScriptedLLM([[tool_call("trial__brew_slowly"), tool_call("trial__brew_slowly")], "Done."])
            output, seen = await answered(
                FunctionAgent(llm=llm, tool_retriever=server).run("Tea!"), litres(1), litres(2)
            )
        questions = [event for event in seen if isinstance(event, MCPElicitation)]
        assert [question.tool for question in questions] == ["trial__brew_slowly"] * 2
        assert questions[0].id != questions[1].id
        assert sorted(self.contents(output)) == ["1 l", "2 l"]

    async def test_meanwhile_the_time_of_none_of_them_runs(self, tmp_path: Path) -> None:
        async with trial(protocol="legacy", timeout=0.7) as server:
            handler = self.agent(server, tmp_path / "note").run("Tea!")
            request = await anext(handler.inputs())
            await asyncio.sleep(1)
            request.respond(content={"litres": 2})
            (tmp_path / "note").unlink()
            assert sorted(self.contents(await handler)) == ["2 l", "stayed"]

    async def test_afterwards_the_time_of_all_of_them_runs(self, tmp_path: Path) -> None:
        async with trial(protocol="legacy", timeout=0.7) as server:
            handler = self.agent(server, tmp_path / "note").run("Tea!")
            (await anext(handler.inputs())).respond(content={"litres": 2})
            brewed, stayed = self.contents(await handler)
        assert {brewed, stayed} > {"2 l"}
        assert "took more than 0.7 s for 'stay'" in brewed + stayed

    async def test_it_stays_open_when_the_call_ends_whose_step_put_it(self, tmp_path: Path) -> None:
        async with trial(protocol="legacy") as server:
            handler = self.agent(server, tmp_path / "note").run("Tea!")
            requests = handler.inputs()
            first = await anext(requests)
            (tmp_path / "note").unlink()
            second = await anext(requests)
            assert second.event.id == first.event.id
            assert second.event.tool == "trial__brew_in_company"  # now there is no other
            first.respond(content={"litres": 2})
            assert sorted(self.contents(await handler)) == ["2 l", "stayed"]

    async def test_then_it_can_be_answered_in_another_process_too(self, tmp_path: Path) -> None:
        note = tmp_path / "note"
        async with trial(protocol="legacy") as server:
            handler = self.agent(server, note).run("Tea!")
            requests = handler.inputs()
            question = (await anext(requests)).event
            note.unlink()
            await anext(requests)
            snapshot = json.loads(json.dumps(handler.ctx.to_dict()))
            await handler.cancel_run()
        note.write_text("here")
        async with trial(protocol="legacy") as server:
            agent = FunctionAgent(llm=ScriptedLLM(["Done."]), tool_retriever=server)
            restored = agent.run(ctx=Context.from_dict(agent, snapshot))
            restored.ctx.send_event(litres(5)(question))
            output, seen = await answered(restored)
        assert sorted(self.contents(output)) == ["5 l", "stayed"]
        assert not [event for event in seen if isinstance(event, MCPElicitation)]

    async def test_it_is_put_once_where_one_step_makes_the_calls(self, tmp_path: Path) -> None:
        async with trial(protocol="legacy") as server:
            handler = TwoCalls(server, tmp_path / "note").run()
            questions = 0
            async for event in handler.stream_events():
                if isinstance(event, MCPElicitation):
                    questions += 1
                    (tmp_path / "note").unlink()
                    await asyncio.sleep(0.3)
                    handler.ctx.send_event(litres(2)(event))
            assert await handler == ["2 l", "stayed"]
        assert questions == 1

    async def test_it_is_closed_when_the_last_of_them_ends(self, tmp_path: Path) -> None:
        async with trial(protocol="legacy") as server:
            workflow = GivenUp(server, tmp_path / "note")
            handler = workflow.run()
            await anext(handler.inputs())
            (tmp_path / "note").unlink()
            await soon(lambda: handler.open_inputs() == [])
            workflow.may_end.set()
            await handler
