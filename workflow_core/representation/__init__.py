"""The event graph of a workflow as data; ``validate`` holds the checks that run before a workflow does."""

from batonflow.workflow_core.representation.build import get_workflow_representation
from batonflow.workflow_core.representation.types import (
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
