"""Branching off from a stored run of an agent or team, with another model if need be."""

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self, cast

from batonflow.llms import LLM
from batonflow.llms.settings import llm_from
from batonflow.workflow_core import Workflow
from batonflow.workflow_core.events import Event

if TYPE_CHECKING:
    from batonflow.agents.handler import AgentHandler

__all__ = ["AgentForks"]


class AgentForks(Workflow):
    """A workflow of agents whose stored runs can be branched off from."""

    def fork(  # pyright: ignore[reportIncompatibleMethodOverride] - it takes a model too
        self,
        run_id: str,
        at: int,
        *,
        state: Mapping[str, Any] | None = None,
        event: Event | None = None,
        new_id: str | None = None,
        llm: LLM | str | None = None,
    ) -> "AgentHandler":
        """Begin a run that shares what another one did up to a commit; see ``Workflow.fork``.

        Args:
            run_id: The run to branch off from.
            at: The last commit that both have.
            state: Values to put into the state.
            event: Sent to the new run.
            new_id: Id of the new run.
            llm: The model that all agents ask from here on, in the new run only.

        Example:
            >>> handler = team.fork("tides-1", at=12, llm="anthropic:claude-sonnet-5")
        """
        model = llm_from(llm) if isinstance(llm, str) else llm
        agent = self if model is None else self.asking(model)
        forked = super(AgentForks, agent).fork(run_id, at, state=state, event=event, new_id=new_id)
        return cast("AgentHandler", forked)

    def asking(self, llm: LLM) -> Self:
        """The same agent or team with another model."""
        other = copy.copy(self)
        cast("Any", other).llm = llm
        return other
