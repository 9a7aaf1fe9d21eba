"""Records and pickles name classes by module path: earlier ones are still read after a class has moved."""

import pickle
from typing import Any

import pytest

from batonflow import JsonSerializer
from batonflow.nodes import MetadataMode, NodeRelationship, ObjectType, RelatedNodeInfo

EARLIER = "batonflow.nodes.schema"
SOURCE = RelatedNodeInfo(node_id="tides", node_type=ObjectType.DOCUMENT)


@pytest.mark.parametrize("value", [SOURCE, MetadataMode.LLM, NodeRelationship.NEXT, ObjectType.TEXT])
def test_a_value_is_read_by_its_earlier_name(value: Any) -> None:
    present = type(value).__module__
    written = JsonSerializer().serialize(value)
    assert present in written
    assert JsonSerializer().deserialize(written.replace(present, EARLIER)) == value
    pickled = pickle.dumps(value, protocol=0)
    assert pickle.loads(pickled.replace(present.encode(), EARLIER.encode())) == value
