"""Claims within the bounds of workflows: the largest numbers of runs that processes drive at a time."""

from collections.abc import Callable, Sequence

from batonflow.durable.store_protocol import Claimed, Serves

__all__ = ["claim_within_bounds"]


def claim_within_bounds(
    limit: int,
    serves: Sequence[Serves] | None,
    count: Callable[[str], int],
    claim: Callable[[int, Sequence[Serves] | None], list[Claimed]],
) -> list[Claimed]:
    """Claim runs, step by step, so that no workflow gets more than its bound.

    Args:
        limit: The largest number of runs.
        serves: The workflows with their bounds; None for all.
        count: Returns the number of runs of a workflow that live owners drive.
        claim: Claims up to a number of runs of workflows.
    """
    bounds: dict[str, int] = {}
    for one in serves or ():
        if one.most is not None:
            bounds[one.workflow] = min(one.most, bounds.get(one.workflow, one.most))
    if not bounds:
        return claim(limit, serves)
    free = {workflow: bound - count(workflow) for workflow, bound in bounds.items()}
    taken: list[Claimed] = []
    while len(taken) < limit:
        wanted = [one for one in serves or () if free.get(one.workflow, 1) > 0]
        if not wanted:
            break
        most = min([limit - len(taken), *(free[one.workflow] for one in wanted if one.workflow in free)])
        found = claim(most, wanted)
        taken += found
        if len(found) < most:
            break
        for one in found:
            if one.workflow in free:
                free[one.workflow] -= 1
    return taken
