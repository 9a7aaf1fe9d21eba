"""Type variables of handlers, contexts, workflows and agents, and type aliases in annotations."""

from types import GenericAlias
from typing import TYPE_CHECKING, Any, Generic, cast, get_args, get_origin

from pydantic import BaseModel
from typing_extensions import TypeVar

from batonflow.workflow_core.events import DictState

__all__ = ["AgentDepsT", "DepsT", "OfAgent", "OfResult", "OutT", "ResultT", "StateT", "declared_result"]

ResultT = TypeVar("ResultT", default=Any, covariant=True)
"""The result of a run."""

OutT = TypeVar("OutT", default=str, covariant=True)
"""The output of an agent."""

DepsT = TypeVar("DepsT", default=Any, covariant=True)
"""The dependencies in a context."""

AgentDepsT = TypeVar("AgentDepsT", default=object, contravariant=True)
"""The dependencies that an agent needs."""

StateT = TypeVar("StateT", bound=BaseModel, default=DictState)
"""The class of the key-value state."""


if TYPE_CHECKING:

    class OfResult(Generic[ResultT]):
        """A workflow with a result of a declared type."""

    class OfAgent(Generic[AgentDepsT, OutT]):
        """An agent with dependencies and an output of declared types."""

else:

    class OfResult:
        """The base of workflows: ``Workflow[Total]`` tells the type of the result.

        ``typing.Generic`` is not a base, because pydantic would require its parameters in each subclass.
        """

        def __class_getitem__(cls, item: Any) -> Any:
            if Generic in cls.__mro__:  # a class of the user with type variables of its own
                return super().__class_getitem__(item)
            return GenericAlias(cls, item)

    class OfAgent:
        """The base of agents: ``FunctionAgent[Deps, int]`` is the class itself, only type checkers know more."""

        def __class_getitem__(cls, item: Any) -> Any:
            return super().__class_getitem__(item) if Generic in cls.__mro__ else cls


def declared_result(cls: type) -> Any:
    """Return the type that a class or its nearest base declares, as in ``class Count(Workflow[Total])``; else Any."""
    for one in cls.__mro__:
        for base in cast("tuple[Any, ...]", vars(one).get("__orig_bases__", ())):
            if isinstance(base, GenericAlias) and issubclass(get_origin(base), OfResult):
                found = get_args(base)[0]
                return Any if isinstance(found, TypeVar) else found
    return Any
