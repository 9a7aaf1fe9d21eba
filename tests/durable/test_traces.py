"""Where a run is traced, beside its records."""

import json

from batonflow.durable.replay import records_of
from batonflow.durable.store_protocol import StoredCommit
from batonflow.durable.traces import trace_in, with_trace

BODY = b'{"t":1.5,"e":0.0,"r":[{"id":1,"kind":"started"}]}'


def test_a_commit_says_where_it_was_traced_and_nothing_else_changes() -> None:
    body = with_trace(BODY, {"otel": {"traceparent": "00-1-2-01"}})
    assert json.loads(body) == {**json.loads(BODY), "o": {"otel": {"traceparent": "00-1-2-01"}}}
    assert records_of([StoredCommit(1, 1.5, body)]) == records_of([StoredCommit(1, 1.5, BODY)])


def test_the_last_one_counts() -> None:
    commits = [
        StoredCommit(1, 1.5, BODY),
        StoredCommit(2, 1.5, with_trace(BODY, {"n": 1})),
        StoredCommit(3, 1.5, with_trace(BODY, {"n": 2})),
        StoredCommit(4, 1.5, BODY),
    ]
    assert trace_in(commits) == {"n": 2}
    assert trace_in(commits[:1]) is None


def test_a_snapshot_holds_the_trace_of_the_commits_before_it() -> None:
    commits = [StoredCommit(3, 1.5, BODY)]
    assert trace_in(commits, b'{"trace":{"n":1}}') == {"n": 1}
    assert trace_in([StoredCommit(3, 1.5, with_trace(BODY, {"n": 2}))], b'{"trace":{"n":1}}') == {"n": 2}
    assert trace_in(commits, b"{}") is None


def test_what_is_no_json_does_not_break_a_commit() -> None:
    assert json.loads(with_trace(BODY, {"odd": object}))["t"] == 1.5
