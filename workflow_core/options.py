"""What is chosen for one workflow instance, and what it keeps between runs, apart from the user's attributes."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal

from batonflow.workflow_core.errors import WorkflowValidationError

if TYPE_CHECKING:
    from batonflow.workflow_core.context.serializers import BaseSerializer
    from batonflow.workflow_core.engine.runner import Run
    from batonflow.workflow_core.engine.state import RunState
    from batonflow.workflow_core.events import Event
    from batonflow.workflow_core.journal.segments import Causes
    from batonflow.workflow_core.journal.store import RunStore
    from batonflow.workflow_core.plugins import BasicRuntime
    from batonflow.workflow_core.resource import ResourceManager
    from batonflow.workflow_core.steps import StepTable
    from batonflow.workflow_core.workflow import Workflow

__all__ = ["Options", "ParentStop", "Upcaster"]

ParentStop = Literal["finish", "cancel"]

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]
"""Translates a record that an earlier version of a workflow's code wrote."""


class Options:
    """The options of a workflow. Arguments as of ``Workflow``, those that need a look.

    Raises:
        WorkflowValidationError: An option has a value that it cannot have.
    """

    __slots__ = (
        "active", "children", "disable_validation", "idle_release", "last_state", "name", "num_concurrent_runs",
        "on_parent_stop", "on_stall", "pending", "resource_manager", "runtime", "serializer", "skip_graph_checks",
        "store", "store_streamed", "timeout", "timeout_excludes_waiting", "types", "upcasters", "validated", "verbose",
        "version",
    )  # fmt: skip

    disable_validation: bool
    name: str | None
    resource_manager: "ResourceManager"
    runtime: "BasicRuntime"
    serializer: "BaseSerializer | None"
    skip_graph_checks: frozenset[str]
    store: "RunStore | None"
    timeout_excludes_waiting: bool
    verbose: bool

    def __init__(
        self,
        *,
        timeout: float | None,
        num_concurrent_runs: int | None,
        on_stall: Literal["warn", "raise"],
        types: Iterable[type],
        version: str | None,
        upcasters: Mapping[str, Upcaster] | None,
        idle_release: float | None,
        store_streamed: bool,
    ) -> None:
        if timeout is not None and (
            isinstance(timeout, bool)
            or not isinstance(timeout, Real)  # pyright: ignore[reportUnnecessaryIsInstance]
            or not timeout >= 0
        ):
            raise WorkflowValidationError(
                f"timeout is a number of seconds, or None for as long as it takes, got {timeout!r}"
            )
        if num_concurrent_runs is not None and (
            isinstance(num_concurrent_runs, bool)
            or not isinstance(num_concurrent_runs, int)  # pyright: ignore[reportUnnecessaryIsInstance]
            or num_concurrent_runs <= 0
        ):
            raise WorkflowValidationError(
                f"num_concurrent_runs must be an integer greater than 0, got {num_concurrent_runs!r}"
            )
        if on_stall not in ("warn", "raise"):
            raise WorkflowValidationError(f'on_stall must be "warn" or "raise", got {on_stall!r}')
        if idle_release is not None and (
            isinstance(idle_release, bool)
            or not isinstance(idle_release, int | float)  # pyright: ignore[reportUnnecessaryIsInstance]
            or not idle_release >= 0
        ):
            raise WorkflowValidationError(f"idle_release is a number of seconds, 0 or more, got {idle_release!r}")
        if version is not None and not isinstance(version, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise WorkflowValidationError(f'version is a text such as "2", got {version!r}')
        self.timeout = timeout
        self.num_concurrent_runs = num_concurrent_runs
        self.on_stall = on_stall
        self.types = tuple(types)
        self.version = version
        self.upcasters = dict(upcasters or {})
        self.idle_release = idle_release
        self.store_streamed = store_streamed
        self.active = 0
        self.children: dict[str, Workflow] = {}
        self.on_parent_stop: dict[str, ParentStop] = {}
        self.pending: OrderedDict[Run, tuple[Event | None, str | None, Causes]] = OrderedDict()
        self.validated: StepTable | None = None
        self.last_state: RunState | None = None

    def check_once(self, workflow: "Workflow") -> None:
        """Check the steps of the workflow with these options, unless that was done or is left out.

        Raises:
            WorkflowValidationError: The workflow is not sound.
        """
        if self.validated is not workflow.step_table:
            if not self.disable_validation:
                workflow.validate()
            self.validated = workflow.step_table
