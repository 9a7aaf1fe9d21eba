"""ToolPolicy: what is declared with a tool, and what is refused where it is declared."""

from typing import Any

import pytest

from batonflow.tools import (
    BaseTool,
    FunctionTool,
    ToolDefinitionError,
    ToolMetadata,
    ToolOutput,
    ToolPolicy,
    adapt_to_async_tool,
    run_tool,
    tool,
)
from batonflow.workflow_core.retry_policy import retry_policy, stop_after_attempt


def test_a_tool_has_no_limits_unless_told() -> None:
    @tool
    def plain() -> None: ...

    policy = plain.policy
    assert (policy.timeout, policy.retry, policy.max_calls, policy.max_result_chars) == (None, None, None, None)
    assert (policy.requires_approval, policy.idempotent, policy.on_unknown) == (False, False, "ask")


def test_the_decorator_and_a_policy_say_the_same() -> None:
    retry = retry_policy(stop=stop_after_attempt(2))

    def fetch() -> None: ...

    decorated = tool(timeout=1.5, retry=retry, max_calls=3, max_result_chars=4000)(fetch)
    made = FunctionTool.from_defaults(
        fetch, policy=ToolPolicy(timeout=1.5, retry=retry, max_calls=3, max_result_chars=4000)
    )
    assert decorated.policy == made.policy


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        ({"timeout": 0}, "timeout=0 is invalid. Give a number of seconds greater than 0"),
        ({"timeout": -1}, "timeout=-1 "),
        ({"timeout": float("inf")}, "timeout=inf .*leave it out for no limit"),
        ({"timeout": "5"}, "timeout='5' "),
        ({"timeout": True}, "timeout=True "),
        ({"approval_timeout": -3}, "approval_timeout=-3 is invalid. Give a number of seconds"),
        ({"retry": 3}, r"retry=3 is invalid. Give a retry policy, as in retry_policy\(stop=stop_after_attempt\(3\)\)"),
        ({"max_calls": 0}, "max_calls=0 is invalid. Give a whole number from 1 on"),
        ({"max_calls": 1.5}, r"max_calls=1\.5 "),
        ({"max_calls": True}, "max_calls=True "),
        ({"max_result_chars": -5}, "max_result_chars=-5 "),
        ({"requires_approval": "yes"}, "requires_approval='yes' is invalid. Give True, False, or a function"),
        ({"idempotent": None}, "idempotent=None is invalid. Give True or False"),
        ({"on_unknown": "maybe"}, "on_unknown='maybe' is invalid. Give 'ask', 'retry' or 'fail'"),
    ],
    ids=str,
)
def test_what_means_nothing_is_refused_with_tool_field_and_remedy(given: dict[str, Any], remedy: str) -> None:
    with pytest.raises(ToolDefinitionError, match=f"^tool 'fetch': .*{remedy}"):

        @tool(**given)
        def fetch() -> None: ...

    with pytest.raises(ToolDefinitionError, match=f"^{remedy}"):
        ToolPolicy(**given)


def test_a_class_of_retry_policies_is_not_a_policy() -> None:
    class Never:
        def next(self, elapsed_time: float, attempts: int, error: Exception) -> float | None:
            return None

    assert ToolPolicy(retry=Never()).retry is not None
    with pytest.raises(ToolDefinitionError, match="retry="):
        ToolPolicy(retry=Never)  # type: ignore[arg-type]


def test_the_refusal_names_the_tool_as_models_know_it() -> None:
    with pytest.raises(ToolDefinitionError, match=r"^tool 'download': timeout"):
        tool(name="download", timeout=0)(lambda: None)


async def test_the_policy_of_a_synchronous_tool_survives_its_adapter() -> None:
    class Shred(BaseTool):
        policy = ToolPolicy(requires_approval=True)

        @property
        def metadata(self) -> ToolMetadata:
            return ToolMetadata(description="Shreds.", name="shred")

        def __call__(self, input: Any) -> ToolOutput:  # noqa: A002
            return ToolOutput(tool_name="shred", content=f"shredded {input}")

    adapted = adapt_to_async_tool(Shred())
    refused = await run_tool(adapted, {"input": "the contract"})
    assert "requires a person's approval" in refused.content
    assert (await run_tool(adapted, {"input": "the draft"}, approved=True)).content == "shredded the draft"
