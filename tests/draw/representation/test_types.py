"""Graphs as models: labels, subclasses, reading back, and leaving out kinds of nodes."""

import pytest
from pydantic import ValidationError

from batonflow.draw.representation import (
    WorkflowEventNode,
    WorkflowExternalNode,
    WorkflowGenericNode,
    WorkflowGraph,
    WorkflowGraphEdge,
    WorkflowGraphNode,
    WorkflowNodeBase,
    WorkflowResourceConfigNode,
    WorkflowResourceNode,
    WorkflowStepNode,
)
from tests.contract import contract


def step(name: str) -> WorkflowStepNode:
    return WorkflowStepNode(id=name, label=name)


def event(name: str, *bases: str) -> WorkflowEventNode:
    return WorkflowEventNode(id=name, label=name, event_type=name, event_types=[name, *bases])


def graph(*arrows: str, nodes: list[WorkflowGraphNode], **fields: object) -> WorkflowGraph:
    edges = [WorkflowGraphEdge(source=a, target=b) for a, b in (arrow.split(">") for arrow in arrows)]
    return WorkflowGraph(name="Flow", nodes=nodes, edges=edges, **fields)


def arrows(of: WorkflowGraph) -> set[tuple[str, str, str | None]]:
    return {(edge.source, edge.target, edge.label) for edge in of.edges}


@contract("11.2")
@pytest.mark.parametrize(("length", "shown"), [(9, "retrieval"), (20, "retrieval"), (8, "retriev*"), (1, "*")])
def test_a_long_label_ends_with_a_star(length: int, shown: str) -> None:
    assert WorkflowNodeBase(id="x", label="retrieval").truncated_label(length) == shown


@contract("11.2")
def test_is_subclass_of_looks_at_the_class_and_its_bases() -> None:
    node = event("Firm", "Query")
    assert node.is_subclass_of("Query")
    assert node.is_subclass_of("Nothing", "Firm")
    assert not node.is_subclass_of("Nothing")
    tool = WorkflowGenericNode(id="t", label="t", node_type="tool", event_types=["FunctionTool"])
    assert tool.is_subclass_of("FunctionTool")
    assert not WorkflowGenericNode(id="t", label="t", node_type="tool").is_subclass_of("FunctionTool")


@contract("11.1")
def test_a_graph_is_read_back_from_json_with_every_kind_of_node() -> None:
    nodes: list[WorkflowGraphNode] = [
        step("begin"),
        event("Query"),
        WorkflowExternalNode(id="external_step", label="external_step"),
        WorkflowResourceNode(id="resource_1", label="db", getter_name="make"),
        WorkflowResourceConfigNode(id="resource_config_1", label="c", config_value={"a": 1}),
        WorkflowGenericNode(id="tool", label="tool", node_type="tool"),
    ]
    whole = graph("begin>Query", nodes=nodes, children={"inner": graph(nodes=[step("inner")])})
    assert WorkflowGraph.model_validate_json(whole.model_dump_json()) == whole
    assert [type(node) for node in WorkflowGraph.model_validate(whole.model_dump()).nodes] == [type(n) for n in nodes]


@contract("11.1")
def test_a_node_without_a_kind_is_refused() -> None:
    with pytest.raises(ValidationError, match="node_type"):
        WorkflowGraph.model_validate({"name": "Flow", "nodes": [{"id": "a", "label": "a"}], "edges": []})


@contract("11.5")
def test_without_events_steps_follow_steps_by_the_name_of_the_event() -> None:
    whole = graph(
        "a>Query", "Query>b", "Query>c", "b>Hit", "Hit>c", nodes=[*map(step, "abc"), event("Query"), event("Hit")]
    )
    left = whole.filter_by_node_type("event")
    assert [node.id for node in left.nodes] == ["a", "b", "c"]
    assert arrows(left) == {("a", "b", "Query"), ("a", "c", "Query"), ("b", "c", "Hit")}
    assert arrows(whole) == {
        ("a", "Query", None),
        ("Query", "b", None),
        ("Query", "c", None),
        ("b", "Hit", None),
        ("Hit", "c", None),
    }


@contract("11.5")
def test_across_several_removed_nodes_the_first_gives_the_label() -> None:
    outside = WorkflowExternalNode(id="external_step", label="external_step")
    whole = graph(
        "a>Ask",
        "Ask>external_step",
        "external_step>Reply",
        "Reply>a",
        nodes=[step("a"), event("Ask"), outside, event("Reply")],
    )
    assert arrows(whole.filter_by_node_type("event", "external")) == {("a", "a", "Ask")}


@contract("11.5")
def test_a_circle_of_removed_nodes_ends_and_leads_nowhere() -> None:
    whole = graph("a>X", "X>Y", "Y>X", nodes=[step("a"), event("X"), event("Y")])
    assert arrows(whole.filter_by_node_type("event")) == set()


@contract("11.5")
def test_an_edge_that_stays_keeps_its_label() -> None:
    whole = graph(nodes=[step("a"), WorkflowResourceNode(id="r", label="db"), event("X")])
    whole.edges.append(WorkflowGraphEdge(source="a", target="r", label="client"))
    assert arrows(whole.filter_by_node_type("event")) == {("a", "r", "client")}


@contract("11.5")
def test_attached_workflows_are_filtered_too_and_links_to_removed_nodes_go() -> None:
    inner = graph("Query>trade", nodes=[event("Query"), step("trade")])
    links = [
        WorkflowGraphEdge(source="Query", target="station/Query"),
        WorkflowGraphEdge(source="a", target="station/trade"),
    ]
    whole = graph("a>Query", nodes=[step("a"), event("Query")], children={"station": inner}, links=links)
    left = whole.filter_by_node_type("event")
    assert [node.id for node in left.children["station"].nodes] == ["trade"]
    assert [(link.source, link.target) for link in left.links] == [("a", "station/trade")]
