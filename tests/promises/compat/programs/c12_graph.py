import asyncio
import json
from typing import Annotated
from pydantic import BaseModel
from workflows import Context, Workflow, catch_error, step
from workflows.collect import Collect, Take
from workflows.events import Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StepFailedEvent, StopEvent
from workflows.representation import (
    WorkflowEventNode, WorkflowExternalNode, WorkflowGenericNode, WorkflowGraph, WorkflowGraphEdge, WorkflowResourceConfigNode,
    WorkflowResourceNode, WorkflowStepNode, get_workflow_representation,
)
from workflows.resource import Resource, ResourceConfig
from show import title


class Settings(BaseModel):
    size: int = 1

with open("graph.json", "w") as file:
    json.dump({"part": {"size": 4}}, file)

class Base(Event):
    n: int
class Item(Base):
    text: str = ""
class Done(Base):
    ...
class Ask(InputRequiredEvent):
    ...
class Answer(HumanResponseEvent):
    ...
class Report(StopEvent):
    pages: int = 0

def make_base():
    """Makes the base."""
    return 1
def make_client(base: Annotated[int, Resource(make_base)], settings: Annotated[Settings, ResourceConfig("graph.json", "part")]):
    return base

class Flow(Workflow):
    """What it is about."""
    @step
    async def split(self, ev: StartEvent, client: Annotated[object, Resource(make_client)]) -> list[Item]:
        """Makes items."""
        return [Item(n=1)]
    @step
    async def work(self, ctx: Context, ev: Item, again: Annotated[object, Resource(make_client)]) -> Done | None:
        return Done(n=1)
    @step
    async def join(self, evs: Annotated[list[Done], Collect(Take(1))]) -> Ask:
        return Ask()
    @step
    async def answer(self, ev: Answer, settings: Annotated[Settings, ResourceConfig("graph.json", path_selector="part", label="Sizes", description="d")]) -> Report:
        return Report(pages=settings.size)
    @catch_error
    async def recover(self, ev: StepFailedEvent) -> Report:
        return Report()

@step(workflow=Flow)
async def free(ev: Done) -> None:
    """Free."""

def short(identifier):
    return identifier.rsplit("_", 1)[0] + "_…" if identifier.startswith("resource_") else identifier

graph = get_workflow_representation(Flow())
title("nodes")
print(graph.name, graph.description, isinstance(graph, WorkflowGraph))
for node in sorted(graph.nodes, key=lambda n: (n.node_type, short(n.id), n.label)):
    extra = ()
    if isinstance(node, WorkflowStepNode):
        extra = (node.description,)
    elif isinstance(node, WorkflowEventNode):
        extra = (node.event_type, node.event_types, sorted(node.produced_by), sorted((node.event_schema or {}).get("properties", {})))
    elif isinstance(node, WorkflowResourceNode):
        extra = (node.type_name, node.getter_name, (node.source_file or "").endswith("c12_graph.py"), node.source_line is not None, node.description)
    elif isinstance(node, WorkflowResourceConfigNode):
        extra = (node.type_name, (node.config_file or "").endswith("graph.json"), node.path_selector, node.config_value, node.description is None or node.description)
        extra = (*extra[:4], sorted(node.config_schema["properties"]))
    elif isinstance(node, WorkflowExternalNode):
        extra = ()
    print(node.node_type, short(node.id), *extra)
print(len({n.id for n in graph.nodes}) == len(graph.nodes))

title("edges")
for edge in sorted(graph.edges, key=lambda e: (short(e.source), short(e.target), e.label or "")):
    print(short(edge.source), "->", short(edge.target), edge.label)

title("filtered")
for kinds in (("event",), ("event", "external"), ("resource", "resource_config"), ("step",)):
    small = graph.filter_by_node_type(*kinds)
    print(kinds, sorted({n.node_type for n in small.nodes}))
    print("  ", sorted((short(e.source), short(e.target), e.label or "") for e in small.edges))

title("labels and chains")
item = next(n for n in graph.nodes if n.id == "Item")
print(item.truncated_label(10), item.truncated_label(3), item.is_subclass_of("Base"), item.is_subclass_of("Report", "Event"), item.is_subclass_of("Done"))
generic = WorkflowGenericNode(id="g", label="a generic node", node_type="agent", event_type="X", event_types=["X", "Y"])
print(generic.truncated_label(5), generic.is_subclass_of("Y"), generic.is_subclass_of("Z"), WorkflowGenericNode(id="h", label="h", node_type="tool").is_subclass_of("X"))
again = WorkflowGraph.model_validate_json(graph.model_dump_json())
print(len(again.nodes) == len(graph.nodes), {type(n).__name__ for n in again.nodes} == {type(n).__name__ for n in graph.nodes}, again.edges == graph.edges)
print(WorkflowGraphEdge(source="a", target="b").label)
of_class = get_workflow_representation(Flow)
print(sorted(short(n.id) for n in of_class.nodes) == sorted(short(n.id) for n in graph.nodes))
class Small(Workflow):
    @step
    async def only(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result=1)
small = get_workflow_representation(Small())
print(sorted((n.node_type, n.id, n.label) for n in small.nodes), [(e.source, e.target) for e in small.edges])
async def runs():
    print(await Small().run())
asyncio.run(runs())
