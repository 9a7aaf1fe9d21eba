"""The event graph as data: what nodes and edges a workflow has."""

import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel

from batonflow.draw.representation import (
    WorkflowEventNode,
    WorkflowExternalNode,
    WorkflowGraph,
    WorkflowResourceConfigNode,
    WorkflowResourceNode,
    WorkflowStepNode,
    get_workflow_representation,
)
from batonflow.workflow_core import (
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    Resource,
    ResourceConfig,
    StartEvent,
    StepFailedEvent,
    StopEvent,
    Workflow,
    catch_error,
    step,
)
from tests.contract import contract


class Query(Event):
    text: str


class FirmQuery(Query):
    pass


class Hit(Event):
    pass


class Question(InputRequiredEvent):
    pass


class Reply(HumanResponseEvent):
    pass


class Search(Workflow):
    """Finds things.

    And asks when unsure.
    """

    @step
    async def begin(self, ev: StartEvent) -> Query | Question:
        """Makes a query."""
        return Query(text="tides")

    @step
    async def look(self, ev: Query | Reply) -> list[Hit] | None:
        return []

    @step
    async def rank(self, hits: list[Hit]) -> StopEvent:
        return StopEvent()


def edges(graph: WorkflowGraph) -> set[tuple[str, str]]:
    return {(edge.source, edge.target) for edge in graph.edges}


def node(graph: WorkflowGraph, wanted: str) -> Any:
    return next(node for node in graph.nodes if node.id == wanted)


@contract("11.1")
def test_an_instance_and_its_class_have_the_same_graph() -> None:
    graph = get_workflow_representation(Search)
    assert graph == get_workflow_representation(Search())
    assert graph.name == "Search"
    assert graph.description == "Finds things.\n\nAnd asks when unsure."


@contract("11.1")
def test_steps_are_nodes_with_their_docstrings() -> None:
    graph = get_workflow_representation(Search)
    assert [n.id for n in graph.nodes if n.node_type == "step"] == ["begin", "look", "rank"]
    assert node(graph, "begin") == WorkflowStepNode(id="begin", label="begin", description="Makes a query.")
    assert node(graph, "look").description is None


@contract("11.1", "11.4")
def test_events_are_nodes_with_bases_schema_and_producers() -> None:
    class Firm(Search):
        @step
        async def begin(self, ev: StartEvent) -> Query | Question | FirmQuery:
            return Query(text="tides")

        @step
        async def firmly(self, ev: FirmQuery) -> Hit:
            return Hit()

    graph = get_workflow_representation(Firm)
    firm = node(graph, "FirmQuery")
    assert isinstance(firm, WorkflowEventNode)
    assert (firm.label, firm.event_type) == ("FirmQuery", "FirmQuery")
    assert firm.event_types == ["FirmQuery", "Query"]
    assert firm.event_schema is not None
    assert firm.event_schema["properties"]["text"]["type"] == "string"
    assert firm.produced_by == ["begin"]
    assert node(graph, "Hit").produced_by == ["look", "firmly"]
    assert node(graph, "StartEvent").produced_by == []


@contract("11.1")
def test_an_event_whose_fields_have_no_place_in_json_has_no_schema() -> None:
    class Connected(Event):
        connection: object
        error: Exception

    class Flow(Workflow):
        @step
        async def begin(self, ev: StartEvent) -> Connected | StopEvent:
            return StopEvent()

        @step
        async def go_on(self, ev: Connected) -> None: ...

    assert node(get_workflow_representation(Flow), "Connected").event_schema is None


@contract("11.3")
def test_events_join_the_steps_and_questions_go_through_the_outside() -> None:
    graph = get_workflow_representation(Search)
    assert edges(graph) == {
        ("StartEvent", "begin"),
        ("begin", "Query"),
        ("begin", "Question"),
        ("Question", "external_step"),
        ("external_step", "Reply"),
        ("Query", "look"),
        ("Reply", "look"),
        ("look", "Hit"),
        ("Hit", "rank"),
        ("rank", "StopEvent"),
    }
    assert isinstance(node(graph, "external_step"), WorkflowExternalNode)


@contract("11.3")
def test_without_a_question_there_is_no_outside() -> None:
    class Flow(Workflow):
        @step
        async def begin(self, ev: StartEvent) -> StopEvent:
            return StopEvent()

        @step
        async def answered(self, ev: Reply) -> None: ...

    graph = get_workflow_representation(Flow)
    assert "external_step" not in {n.id for n in graph.nodes}
    assert ("Reply", "answered") in edges(graph)


@contract("11.3", "3.8")
def test_a_step_that_takes_subclasses_has_an_edge_from_each_but_not_from_the_stop_event() -> None:
    class Flow(Workflow):
        @step
        async def begin(self, ev: StartEvent) -> Query | FirmQuery | StopEvent:
            return StopEvent()

        @step
        async def exactly(self, ev: Query) -> None: ...

        @step(accept_event_subclasses=True)
        async def widely(self, ev: Event) -> None: ...

    found = edges(get_workflow_representation(Flow))
    assert {source for source, target in found if target == "exactly"} == {"Query"}
    assert {source for source, target in found if target == "widely"} == {"Event", "StartEvent", "Query", "FirmQuery"}


@contract("11.3")
def test_a_handler_hangs_on_the_failure_event() -> None:
    class Flow(Search):
        @catch_error
        async def rescue(self, ev: StepFailedEvent) -> StopEvent:
            return StopEvent()

    assert {("StepFailedEvent", "rescue"), ("rescue", "StopEvent")} <= edges(get_workflow_representation(Flow))


# --- resources --------------------------------------------------------------------------------------------------------


class Limits(BaseModel):
    tokens: int


def make_index() -> list[str]:
    """An index of words."""
    return []


def make_client(index: Annotated[list[str], Resource(make_index)]) -> dict[str, str]:
    return {}


@contract("11.1", "11.3", "11.4")
def test_resources_are_one_node_per_factory_with_the_parameter_on_the_edge() -> None:
    class Flow(Workflow):
        @step
        async def begin(self, ev: StartEvent, client: Annotated[dict[str, str], Resource(make_client)]) -> StopEvent:
            return StopEvent()

        @step
        async def other(self, ev: StartEvent, words: Annotated[list[str], Resource(make_index)]) -> None: ...

    graph = get_workflow_representation(Flow)
    resources = {n.getter_name: n for n in graph.nodes if isinstance(n, WorkflowResourceNode)}
    assert set(resources) == {"make_client", "make_index"}
    client, index = resources["make_client"], resources["make_index"]
    assert (index.type_name, index.label, index.description) == ("list", "list", "An index of words.")
    assert Path(str(index.source_file)).name == Path(__file__).name
    assert index.source_line == make_index.__code__.co_firstlineno
    assert len(index.id) == len("resource_") + 12
    assert index.id.startswith("resource_")
    found = {(edge.source, edge.target, edge.label) for edge in graph.edges if edge.label is not None}
    assert found == {("begin", client.id, "client"), (client.id, index.id, "index"), ("other", index.id, "words")}


@contract("11.4")
def test_two_factories_of_one_name_are_two_nodes_and_the_same_at_every_look() -> None:
    def maker(value: int) -> Any:
        def make() -> int:
            return value

        return make

    class Flow(Workflow):
        @step
        async def begin(
            self, ev: StartEvent, a: Annotated[int, Resource(maker(1))], b: Annotated[int, Resource(maker(2))]
        ) -> StopEvent:
            return StopEvent()

    graph = get_workflow_representation(Flow)
    assert len({n.id for n in graph.nodes if n.node_type == "resource"}) == 2
    assert graph == get_workflow_representation(Flow)


@contract("11.1")
def test_a_factory_without_source_is_drawn_all_the_same() -> None:
    class Flow(Workflow):
        @step
        async def begin(self, ev: StartEvent, words: Annotated[Any, Resource(dict)]) -> StopEvent:
            return StopEvent()

    (resource,) = [n for n in get_workflow_representation(Flow).nodes if isinstance(n, WorkflowResourceNode)]
    assert (resource.getter_name, resource.source_file, resource.source_line) == ("dict", None, None)


@contract("11.1", "11.4")
def test_a_configuration_shows_its_file_schema_and_present_value(tmp_path: Path) -> None:
    file = tmp_path / "app.json"
    file.write_text(json.dumps({"limits": {"tokens": 5}}))
    config = ResourceConfig(str(file), "limits", label="Limits of the app", description="What a run may use.")

    class Flow(Workflow):
        @step
        async def begin(self, ev: StartEvent, limits: Annotated[Limits, config]) -> StopEvent:
            return StopEvent()

    (shown,) = [n for n in get_workflow_representation(Flow).nodes if isinstance(n, WorkflowResourceConfigNode)]
    assert (shown.label, shown.description) == ("Limits of the app", "What a run may use.")
    assert (shown.type_name, shown.config_file, shown.path_selector) == ("Limits", str(file), "limits")
    assert shown.config_value == {"tokens": 5}
    assert shown.config_schema is not None
    assert shown.config_schema["required"] == ["tokens"]
    assert len(shown.id) == len("resource_config_") + 12


@contract("11.1")
def test_a_configuration_whose_file_is_missing_has_no_value() -> None:
    class Flow(Workflow):
        @step
        async def begin(
            self, ev: StartEvent, limits: Annotated[Limits, ResourceConfig("gone.json", "a.b")]
        ) -> StopEvent:
            return StopEvent()

    (shown,) = [n for n in get_workflow_representation(Flow).nodes if isinstance(n, WorkflowResourceConfigNode)]
    assert (shown.config_file, shown.path_selector, shown.config_value) == ("gone.json", "a.b", None)


# --- attached workflows -----------------------------------------------------------------------------------------------


class Station(Workflow, entry=[Query]):
    @step
    async def trade(self, ev: Query) -> Hit | StopEvent:
        return Hit()


class Clerk(Workflow):
    @step
    async def file(self, ev: StartEvent) -> StopEvent:
        return StopEvent()


class Shop(Workflow):
    @step
    async def begin(self, ev: StartEvent, clerk: Clerk) -> Query:
        return Query(text="apple")

    @step
    async def received(self, ev: Hit) -> StopEvent:
        return StopEvent()


def test_attached_workflows_are_graphs_inside_the_graph_with_links_between() -> None:
    graph = get_workflow_representation(Shop(workflows={"station": Station(), "clerk": Clerk()}))
    assert {name: child.name for name, child in graph.children.items()} == {"station": "Station", "clerk": "Clerk"}
    assert graph.children["station"] == get_workflow_representation(Station)
    assert {(link.source, link.target, link.label) for link in graph.links} == {
        ("Query", "station/Query", None),
        ("station/Hit", "Hit", None),
        ("begin", "clerk/StartEvent", "clerk"),
    }


def test_a_class_shows_the_attached_workflows_that_its_steps_ask_for() -> None:
    graph = get_workflow_representation(Shop)
    assert {name: child.name for name, child in graph.children.items()} == {"clerk": "Clerk"}
    assert [(link.source, link.target) for link in graph.links] == [("begin", "clerk/StartEvent")]


def test_a_workflow_that_a_resource_makes_is_a_graph_inside_the_graph_of_the_class() -> None:
    def make() -> Clerk:
        return Clerk()

    class Calling(Workflow):
        @step
        async def begin(self, ev: StartEvent, clerk: Annotated[Clerk, Resource(make)]) -> StopEvent:
            return StopEvent()

    graph = get_workflow_representation(Calling)
    assert list(graph.children) == ["clerk"]
    assert [(link.source, link.target) for link in graph.links] == [("begin", "clerk/StartEvent")]


class Again(Workflow):
    @step
    async def begin(self, ev: StartEvent) -> StopEvent:
        """Begin."""
        return StopEvent()

    @catch_error
    async def recover(self, ev: StepFailedEvent) -> StopEvent:
        return StopEvent()


class AgainOtherwise(Again):
    @step
    async def begin(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result="other")


def test_a_step_called_like_a_method_of_ours_is_not_described_by_that() -> None:
    nodes = get_workflow_representation(AgainOtherwise).nodes
    described = {node.id: node.description for node in nodes if isinstance(node, WorkflowStepNode)}
    assert described == {"begin": "Begin.", "recover": None}
