"""Resources in tools: what ``Annotated[T, Resource(make)]`` means in a step, it means in a tool."""

from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from batonflow.agents import AgentWorkflow, FunctionAgent
from batonflow.llms import ScriptedLLM, tool_call
from batonflow.resources import Resource, ResourceConfig
from batonflow.tools import FunctionTool, ToolArgumentsError
from batonflow.workflow_core import WorkflowValidationError


class Database:
    """A database that counts how often it was opened."""

    opened = 0

    def __init__(self) -> None:
        type(self).opened += 1


@pytest.fixture(autouse=True)
def _closed() -> None:
    Database.opened = 0


async def open_database() -> Database:
    return Database()


SEEN: list[Any] = []


async def orders(user: str, db: Annotated[Database, Resource(open_database)]) -> str:
    """Orders of a user."""
    SEEN.append(db)
    return f"orders of {user}"


def agent(*turns: Any, **options: Any) -> FunctionAgent[Any, Any]:
    return FunctionAgent(llm=ScriptedLLM([*turns, "Done."]), tools=[orders], **options)


async def test_it_is_built_once_and_hidden_from_the_model() -> None:
    SEEN.clear()
    made = agent(tool_call("orders", user="ann"), tool_call("orders", user="bob"))
    output = await made.run("Go.")
    assert [str(call.tool_output) for call in output.tool_calls] == ["orders of ann", "orders of bob"]  # type: ignore[union-attr]
    assert Database.opened == 1
    assert SEEN[0] is SEEN[1]
    [spec] = made.llm.requests[0].tools  # type: ignore[union-attr]
    assert list(spec.parameters["properties"]) == ["user"]
    assert "db" not in spec.description


async def test_the_members_of_a_team_share_it() -> None:
    SEEN.clear()
    first = agent(
        tool_call("orders", user="ann"), tool_call("handoff", to_agent="b", reason="x"), name="a", description="A"
    )
    second = agent(tool_call("orders", user="bob"), name="b", description="B")
    await AgentWorkflow(agents=[first, second], root_agent="a").run("Go.")
    assert Database.opened == 1
    assert len(SEEN) == 2


async def test_a_model_cannot_give_it() -> None:
    made = agent(tool_call("orders", user="ann", db="mine"))
    output = await made.run("Go.")
    assert "db" in str(output.tool_calls[0].tool_output)  # type: ignore[union-attr]
    assert Database.opened == 0


async def test_an_error_of_the_factory_is_the_result_of_the_call() -> None:
    def broken() -> Database:
        raise ConnectionError("no database")

    async def look(db: Annotated[Database, Resource(broken)]) -> str:
        """Look."""
        return "looked"

    output = await FunctionAgent(llm=ScriptedLLM([tool_call("look"), "Done."]), tools=[look]).run("Go.")
    assert "no database" in str(output.tool_calls[0].tool_output)  # type: ignore[union-attr]


def test_a_call_outside_of_a_run_takes_it_by_name() -> None:
    tool = FunctionTool.from_defaults(orders)
    with pytest.raises(ToolArgumentsError, match="needs db, which runs of agents pass"):
        tool.call(user="ann")
    assert str(tool.call(user="ann", db=Database())) == "orders of ann"


def test_validate_checks_it() -> None:
    class Limits(BaseModel):
        most: int

    async def look(limits: Annotated[Limits, ResourceConfig(config_file="missing.json")]) -> str:
        """Look."""
        return "looked"

    with pytest.raises(WorkflowValidationError, match=r"In tool 'look'.*missing\.json"):
        FunctionAgent(llm=ScriptedLLM(["Done."]), tools=[look]).validate()


async def test_a_factory_that_fails_is_an_error_of_the_tool() -> None:
    def broken() -> Database:
        raise ConnectionError("no database")

    async def look(db: Annotated[Database, Resource(broken)]) -> str:
        """Look."""
        return "looked"

    agent = FunctionAgent(llm=ScriptedLLM([tool_call("look"), "Done."]), tools=[look], tool_errors="raise")
    with pytest.raises(ConnectionError, match="no database"):
        await agent.run("Go.")


async def test_an_instruction_takes_resources_too() -> None:
    async def rules(ctx: Any, db: Annotated[Database, Resource(open_database)]) -> str:
        return f"Opened {db.opened} time."

    llm = ScriptedLLM(["Done."])
    await FunctionAgent(llm=llm, instructions=[rules]).run("Go.")
    assert llm.requests[0].messages[0].content == "Opened 1 time."
