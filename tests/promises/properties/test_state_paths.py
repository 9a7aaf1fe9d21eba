"""Dotted paths of the state store against a nested dict that does the same by hand."""

import asyncio
import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from batonflow.workflow_core.context.state_store import DictState, InMemoryStateStore

MISSING = "nothing there"
keys = st.sampled_from(["a", "b", "items", "get", "0", "1", "-1", "2"])
paths = st.lists(keys, min_size=1, max_size=4)
values = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=5,
)


class Refused(Exception):
    """The model says that a path leads through something that cannot hold it."""


def read(container: Any, path: list[str]) -> Any:
    for key in path:
        if isinstance(container, dict) and key in container:
            container = container[key]
        elif isinstance(container, list) and key.lstrip("-").isdigit() and -len(container) <= int(key) < len(container):
            container = container[int(key)]
        else:
            return MISSING
    return container


def write(container: Any, path: list[str], value: Any) -> None:
    key, rest = path[0], path[1:]
    if isinstance(container, list):
        if not key.lstrip("-").isdigit() or not -len(container) <= int(key) < len(container):
            raise Refused
        position: Any = int(key)
    elif isinstance(container, dict):
        position = key
    else:
        raise Refused
    if not rest:
        container[position] = value
        return
    inner = read(container, [key])
    if inner in (MISSING, None):
        inner = {}
        write(inner, rest, value)
        container[position] = inner
    else:
        write(inner, rest, value)


async def _follow(operations: list[tuple[str, list[str], Any]]) -> None:
    store = InMemoryStateStore(DictState())
    model: dict[str, Any] = {}
    for operation, path, value in operations:
        dotted = ".".join(path)
        if operation == "get":
            assert await store.get(dotted, MISSING) == read(model, path)
            continue
        earlier = await store.get_state()
        before = copy.deepcopy(earlier.to_dict())
        attempt = copy.deepcopy(model)
        try:
            write(attempt, path, copy.deepcopy(value))
        except Refused:
            try:
                await store.set(dotted, value)
            except ValueError:
                pass
            else:
                raise AssertionError(f"{dotted} was written through something that cannot hold it")
        else:
            model = attempt
            await store.set(dotted, value)
        assert earlier.to_dict() == before, "an earlier reader sees the change"
        assert (await store.get_state()).to_dict() == model


@given(st.lists(st.tuples(st.sampled_from(["get", "set", "set"]), paths, values), max_size=12))
def test_paths_mean_what_they_mean_in_nested_dicts_and_lists(operations):
    asyncio.run(_follow(operations))


@given(st.lists(st.tuples(keys, values), min_size=1, max_size=6), values)
def test_an_edit_changes_the_state_as_a_whole_or_not_at_all(changes, before):
    async def edit() -> None:
        store = InMemoryStateStore(DictState())
        await store.set("a", before)
        state = (await store.get_state()).to_dict()
        expected = {**copy.deepcopy(state), **dict(changes)}
        try:
            async with store.edit_state() as draft:
                for key, value in changes:
                    draft[key] = value
                raise InterruptedError
        except InterruptedError:
            pass
        assert (await store.get_state()).to_dict() == state
        async with store.edit_state() as draft:
            for key, value in changes:
                draft[key] = value
        assert (await store.get_state()).to_dict() == expected

    asyncio.run(edit())


def test_a_path_may_have_a_thousand_segments():
    async def deep() -> object:
        store = InMemoryStateStore(DictState())
        path = ".".join("a" * 1000)
        await store.set(path, "deep down")
        return await store.get(path)

    assert asyncio.run(deep()) == "deep down"
