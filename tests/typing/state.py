"""State and dependencies of contexts, as type checkers see them."""

import asyncio
from dataclasses import dataclass
from typing import Any, assert_type

from pydantic import BaseModel

from batonflow import Context, RunContext, StartEvent, StopEvent, Workflow, step
from batonflow.workflow_core import DictState


@dataclass
class Deps:
    user: str


class Case(BaseModel):
    number: int = 0


class Counts(Workflow[int]):
    @step
    async def count(self, ctx: Context[Case], ev: StartEvent) -> StopEvent:
        async with ctx.store.edit_state() as state:
            assert_type(state, Case)
            assert isinstance(state, Case)
            state.number += 1
        state = await ctx.store.get_state()
        assert_type(state, Case)
        assert isinstance(state, Case)
        return StopEvent(result=state.number)


class Aliased(Workflow[int]):
    @step
    async def count(self, ctx: RunContext[Deps, Case], ev: StartEvent) -> StopEvent:
        assert_type(ctx, Context[Case, Deps])
        state = await ctx.store.get_state()
        assert_type(state, Case)
        assert isinstance(state, Case)
        return StopEvent(result=state.number)


class Untyped(Workflow[int]):
    @step
    async def count(self, ctx: Context, ev: StartEvent) -> StopEvent:
        assert_type(ctx, Context[DictState, Any])
        state = await ctx.store.get_state()
        assert_type(state, DictState)
        assert isinstance(state, DictState)
        return StopEvent(result=len(state.to_dict()))


def of_user(ctx: RunContext[Deps]) -> Context[DictState, Deps]:
    return ctx


def of_anything(ctx: Context[Case, Deps]) -> Context[Case, object]:
    return ctx


async def main() -> None:
    assert await Counts().run() == 1
    assert await Aliased().run() == 0
    assert await Untyped().run() == 0


async def refused(ctx: Context[Case, object], case: RunContext[Deps, Case]) -> None:
    of_user(ctx)  # E
    of_user(case)  # E
    async with case.store.edit_state() as state:
        state.numbr = 1  # E


if __name__ == "__main__":
    asyncio.run(main())
