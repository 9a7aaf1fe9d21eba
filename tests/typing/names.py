"""Names that a package does not have, as type checkers see them."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from batonflow import Agentic  # E
    from batonflow.agents import ToolCalls  # E
    from batonflow.agents.memory import Memories  # E
    from batonflow.llms import OpenAy  # E
    from batonflow.server import WorkflowServers  # E
    from batonflow.tools import Tools  # E
    from batonflow.workflow_core import Steps  # E
