"""What a workflow shows of itself, in a way that leaves every name to those who subclass it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from batonflow.workflow_core.errors import WorkflowValidationError
from batonflow.workflow_core.options import checked

if TYPE_CHECKING:
    from batonflow.workflow_core.options import Options

__all__ = ["option", "shown"]

T = TypeVar("T")


class shown(Generic[T]):  # noqa: N801 - stands where `property` would
    """A property that an attribute of the same name hides, be it set on an instance or declared in a class.

    Args:
        get: What it shows of a workflow.
    """

    def __init__(self, get: Callable[[Any], T]) -> None:
        self._get = get
        self.__doc__ = get.__doc__
        self._name = get.__name__

    def __get__(self, workflow: Any, owner: type) -> T:
        if workflow is None:
            # Else pydantic would take it for the default of a field of this name.
            raise AttributeError(f"{owner.__name__}.{self._name} is there on instances only")
        return self._get(workflow)

    if TYPE_CHECKING:  # it is hidden by what is set, whatever that is

        def __set__(self, workflow: Any, value: Any) -> None: ...


class option:  # noqa: N801 - stands where `property` would
    """An option under the name of the attribute that programs of LlamaIndex read and set.

    What is set holds for runs that begin afterwards. Before ``Workflow.__init__`` it is an attribute like any other,
    and the option takes its place.

    Args:
        name: The option.
    """

    def __init__(self, name: str) -> None:
        self._option = name

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, workflow: Any, owner: type) -> Any:
        if workflow is None:
            return self
        attributes: dict[str, Any] = workflow.__dict__
        options: Options | None = attributes.get("__batonflow__")
        if options is not None:
            return getattr(options, self._option)
        if self._name not in attributes:
            raise AttributeError(f"{owner.__name__} has no {self._name} before Workflow.__init__()")
        return attributes[self._name]

    def __set__(self, workflow: Any, value: Any) -> None:
        attributes: dict[str, Any] = workflow.__dict__
        options: Options | None = attributes.get("__batonflow__")
        if options is None:
            attributes[self._name] = value
        else:
            try:
                setattr(options, self._option, checked(self._option, value))
            except WorkflowValidationError as error:
                raise WorkflowValidationError(
                    f"{type(workflow).__name__}.{self._name} is the option {self._option}, {error}: call an attribute "
                    "of your own otherwise"
                ) from None
