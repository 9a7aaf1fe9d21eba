"""The typed state of agents: a model under the key ``state``, and contexts with a view on it."""

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from pydantic import BaseModel

from batonflow.agents.hooks import name_of
from batonflow.agents.middleware import POINTS
from batonflow.tools import FunctionTool
from batonflow.tools.schema import state_of_function
from batonflow.user_warnings import warn_user
from batonflow.values.state_data import MISSING, check_path, read_part, write_into
from batonflow.workflow_core.context.state_store import InMemoryStateStore, draft_of, new_state

__all__ = [
    "StateTypeWarning",
    "StateView",
    "declared_state",
    "state_of",
    "state_of_run",
    "state_of_team",
    "view_of",
    "warn_of_untyped",
]

STATE = "state"
"""The key of the state that models see."""

StateT = TypeVar("StateT", bound=BaseModel)

_NOTHING = object()


class StateTypeWarning(UserWarning):
    """A tool or step names the type of a state that its agent does not declare."""


def declared_state(state: Any, initial_state: Any = None) -> BaseModel | None:
    """Return the state at the beginning of a run, from a model or an instance, or None.

    Args:
        state: The model or the instance.
        initial_state: The dict of an agent without a typed state.

    Raises:
        ValueError: It is neither, a field of the model has no default, or both states are given.
    """
    if state is None:
        return None
    if initial_state:
        raise ValueError("state and initial_state are two states: leave one of them out")
    if isinstance(state, type) and issubclass(state, BaseModel):
        return new_state(state)
    if isinstance(state, BaseModel):
        return state.model_copy(deep=True)
    raise ValueError(f"state is a pydantic model or an instance of it, not {state!r}; a dict is an initial_state")


def state_of_run(agent: Any, state: Any) -> BaseModel | None:
    """Return the state that a run is given, in the place of the agent's.

    Args:
        agent: The agent or team.
        state: The model, or an instance of it.

    Raises:
        ValueError: It is neither, or not of the class that the agent declares.
    """
    found, own = declared_state(state), agent.__batonflow_state__
    if found is not None and own is not None and not isinstance(found, type(own)):
        name = type(own).__name__
        raise ValueError(
            f"run(state=...) takes a {name} or an object of a class derived from it, because agent {agent.name} has "
            f"state={name}; got {type(found).__name__}"
        )
    return found


def state_of_team(state: Any, initial_state: Any, members: Iterable[Any]) -> BaseModel | None:
    """Return the state at the beginning of a team's run; without one, the state that its members declare.

    Args:
        state: The state of the team, as in :func:`declared_state`.
        initial_state: The dict of a team without a typed state.
        members: The members.

    Raises:
        ValueError: A member declares a state that the team's is not an instance of.
    """
    found, owner = declared_state(state, initial_state), "the team"
    wanting = [(one, one.__batonflow_state__) for one in members if one.__batonflow_state__ is not None]
    if found is None and wanting and not initial_state:
        # The most derived state serves all members, if they form one line.
        agent, found = max(wanting, key=lambda one: len(type(one[1]).__mro__))
        owner = agent.name
    for agent, wanted in wanting:
        if not isinstance(found, type(wanted)):
            has = f"{owner} has state={type(found).__name__}" if found is not None else "the team has an initial_state"
            raise ValueError(
                f"Agent {agent.name} has state={type(wanted).__name__}, and {has}: give the team "
                f"state={type(wanted).__name__}, or a class derived from it"
            )
    return found


def warn_of_untyped(agent: Any) -> None:
    """Warn of tools, steps, instructions and middleware with a state's type, in an agent without a state.

    Args:
        agent: The agent.
    """
    for name, wanted in _named_states(agent):
        if wanted is not None:
            warn_user(
                f"{name} names Context[{wanted.__name__}], and agent {agent.name} has no state of this type: give it "
                f"state={wanted.__name__}, or write Context",
                StateTypeWarning,
            )


def _named_states(agent: Any) -> Iterator[tuple[str, Any]]:
    for tool in agent.tools:
        if isinstance(tool, FunctionTool):
            yield f"Tool {tool.metadata.get_name()}", tool.state_type
    for spec in agent.__batonflow__.steps.table.steps.values():
        yield f"Step {spec.name}", spec.config.context_state_type
    for one in agent.instructions:
        if not isinstance(one, str):
            function = getattr(one, "function", one)
            yield f"Instruction {name_of(function)}", state_of_function(function)
    for one in agent.middleware:
        for point in POINTS:
            yield f"Middleware {one.name}", state_of_function(getattr(one.__class__, point))


def state_of(state: Any, wanted: type[StateT]) -> StateT:
    """Return the typed state of a run.

    Args:
        state: The value under the key ``state``.
        wanted: Its class.

    Raises:
        TypeError: The state is of another class.
    """
    if not isinstance(state, wanted):
        raise TypeError(
            f"The state of the run is a {type(state).__name__}, not a {wanted.__name__}: construct the agent with "
            f"state={wanted.__name__}"
        )
    return state


def view_of(store: InMemoryStateStore[Any], wanted: Any) -> "StateView[Any] | None":
    """Return the view on the typed state in a store; None if the state has another type."""
    state = store.get_sync(STATE, None)
    return StateView(store, wanted) if isinstance(state, wanted) else None


class StateView(InMemoryStateStore[StateT]):
    """A store whose whole state is the typed state of an agent. It validates values when they are set.

    Args:
        store: The store of the run.
        state_type: The class of the state.
    """

    __slots__ = ("_base", "_state_type")

    def __init__(self, store: InMemoryStateStore[Any], state_type: type[StateT]) -> None:  # pyright: ignore[reportMissingSuperCall]
        self._base, self._state_type = store, state_type
        for name in InMemoryStateStore.__slots__:
            setattr(self, name, getattr(store, name))

    @property
    def state_type(self) -> type[StateT]:
        """The class of the state."""
        return self._state_type

    async def get(self, path: str, default: Any = MISSING) -> Any:
        """Return the value at a dotted path of the state.

        Raises:
            ValueError: There is no value and no default was given.
        """
        return await super().get(self._under(path, default), default)

    def get_sync(self, path: str, default: Any = MISSING) -> Any:
        """Return the value at a dotted path; the form of ``get`` for any thread."""
        return super().get_sync(self._under(path, default), default)

    async def set(self, path: str, value: Any) -> None:
        """Put a value at a dotted path of the state, and validate it.

        Raises:
            ValueError: The state lacks the field, or the value does not fit it.
        """
        await super().set(self._under(path), value)

    def set_sync(self, path: str, value: Any) -> None:
        """Put a value at a dotted path; the form of ``set`` for any thread."""
        super().set_sync(self._under(path), value)

    def _under(self, path: str, default: Any = MISSING) -> str:
        """Return the path in the store of the run."""
        check_path(path)
        kind = type(self._now())
        head = path.partition(".")[0]
        if default is MISSING and head not in kind.model_fields and kind.model_config.get("extra") != "allow":
            raise ValueError(f"{kind.__name__} has no field {head!r}; its fields: {', '.join(kind.model_fields)}")
        return f"{STATE}.{path}"

    def _get(self, path: str, default: Any) -> Any:
        found = super()._get(path, _NOTHING if default is MISSING else default)
        if found is _NOTHING:
            inner = path.removeprefix(f"{STATE}.")
            raise ValueError(f"Path {inner!r} is not in the state, which is a {self._state_type.__name__}")
        return found

    def _now(self) -> StateT:
        return state_of(super()._get(STATE, None), self._state_type)

    def _get_state(self) -> StateT:
        return self._now().model_copy()

    def _begin_write(self, names: Iterable[str]) -> None:
        self._is_detached |= self._base._is_detached
        super()._begin_write(names)

    def _set(self, path: str, value: Any) -> None:
        head, now = path.split(".")[1], self._now()
        changed = _assigned(now, path.removeprefix(f"{STATE}."), value)
        # A validator of the model may have set other fields, too. In each case it is one write, as attempts count them.
        others = (name for name in type(now).model_fields if name != head)
        if all(getattr(changed, name) is getattr(now, name) for name in others):
            super()._set(f"{STATE}.{head}", getattr(changed, head))
        else:
            super()._set(STATE, changed)

    def _set_state(self, state: BaseModel) -> None:
        super()._set(STATE, state_of(state, self._state_type))

    def _clear(self) -> None:
        super()._set(STATE, new_state(type(self._now())))

    def _begin_edit(self) -> BaseModel:
        return draft_of(self._now())

    def _commit(self, draft: BaseModel) -> None:
        for name in type(draft).model_fields:
            if not type(draft).model_fields[name].frozen and not draft.model_config.get("frozen"):
                draft.__pydantic_validator__.validate_assignment(draft, name, getattr(draft, name))
        super()._set(STATE, draft)


def _assigned(model: BaseModel, path: str, value: Any) -> BaseModel:
    """Return a model with another value at a dotted path, validated by the model that has the field.

    Raises:
        ValueError: The value does not fit, or the path leads through a value without parts.
    """
    changed = model.model_copy()
    head, _, rest = path.partition(".")
    part = read_part(model, head)
    if rest and isinstance(part, BaseModel):
        value = _assigned(part, rest, value)
    elif rest:
        write_into(changed, path, value)
        value = read_part(changed, head)
    model.__pydantic_validator__.validate_assignment(changed, head, value)
    return changed
