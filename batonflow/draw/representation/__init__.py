"""The event graph of a workflow as data; ``validate`` has the checks before a run."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from batonflow.draw.representation.build import get_workflow_representation
    from batonflow.draw.representation.types import (
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

__all__ = [
    "WorkflowEventNode",
    "WorkflowExternalNode",
    "WorkflowGenericNode",
    "WorkflowGraph",
    "WorkflowGraphEdge",
    "WorkflowGraphNode",
    "WorkflowNodeBase",
    "WorkflowResourceConfigNode",
    "WorkflowResourceNode",
    "WorkflowStepNode",
    "get_workflow_representation",
]


def __getattr__(name: str) -> Any:
    # The checks run before every workflow; the graph is loaded only for drawings and servers.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "build" if name == "get_workflow_representation" else "types"
    return getattr(import_module(f"{__name__}.{home}"), name)
