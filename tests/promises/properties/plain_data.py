"""Plain data, among them some that look as the serializer writes an object of a class."""

from typing import Any

from hypothesis import strategies as st

__all__ = ["MARKS", "like_marks", "plain"]

MARKS = ["__is_pydantic", "__is_component", "__is_data", "qualified_name", "value"]


def like_marks(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Data that look as an object of a class does when it is written."""
    names = st.just("batonflow.workflow_core.events.StartEvent") | st.just("lost.Gone") | inner
    return st.builds(
        lambda mark, name, value: {mark: True, "qualified_name": name, "value": value},
        st.sampled_from(MARKS[:3]),
        names,
        inner,
    )


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(MARKS), inner) | like_marks(inner),
    max_leaves=10,
)
