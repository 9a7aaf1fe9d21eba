"""Embedding models: which methods a program writes, batches, caches, events, and a server with OpenAI's protocol."""

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from pydantic import Field

from batonflow.instrumentation import get_dispatcher
from batonflow.instrumentation.handlers import BaseEventHandler
from batonflow.llms import Settings, track_usage
from batonflow.llms.limits import RateLimits
from batonflow.nodes import TextNode
from batonflow.retrieval import (
    BaseEmbedding,
    CallableEmbedding,
    MockEmbedding,
    OpenAIEmbedding,
    WordsEmbedding,
    resolve_embed_model,
)


class Sync(BaseEmbedding):
    def _get_text_embedding(self, text: str) -> list[float]:
        return [float(len(text))]

    def _get_query_embedding(self, query: str) -> list[float]:
        return [-float(len(query))]


class Batches(BaseEmbedding):
    """Counts its requests; a shorter text takes longer."""

    requests: list[list[str]] = Field(default_factory=list[list[str]], exclude=True)

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        self.requests.append(texts)
        await asyncio.sleep(0.02 / max(1, len(texts[0])))
        return [[float(len(text))] for text in texts]


async def test_synchronous_methods_are_enough() -> None:
    model = Sync()
    assert model.get_text_embedding("abc") == await model.aget_text_embedding("abc") == [3.0]
    assert model.get_query_embedding("abc") == await model.aget_query_embedding("abc") == [-3.0]
    assert model.get_text_embedding_batch(["a", "bb"]) == await model.aget_text_embedding_batch(["a", "bb"])
    assert model.get_agg_embedding_from_queries(["a", "abc"]) == [-2.0]
    assert await model.aget_agg_embedding_from_queries(["a", "abc"], agg_fn=lambda found: found[0]) == [-1.0]


async def test_one_asynchronous_method_is_enough_and_batches_keep_their_order() -> None:
    model = Batches(embed_batch_size=2, num_workers=3, requests=[])
    assert await model.aget_text_embedding_batch(["a", "bb", "ccc", "dddd", "e"]) == [[1.0], [2.0], [3.0], [4.0], [1.0]]
    assert sorted(map(len, model.requests)) == [1, 2, 2]
    assert await model.aget_query_embedding("abc") == [3.0]


def test_it_is_used_from_synchronous_code_too() -> None:
    assert Batches(requests=[]).get_text_embedding_batch(["a", "bb"]) == [[1.0], [2.0]]


async def test_as_a_transformation_it_sets_the_vectors_of_nodes() -> None:
    node = TextNode(text="abc", metadata={"n": 1}, excluded_embed_metadata_keys=["n"])
    assert (await Sync().acall([node]))[0].embedding == Sync()([node])[0].embedding == [3.0]


@pytest.mark.parametrize(("mode", "value"), [("cosine", 0.6), ("dot_product", 3.0), ("euclidean", -4.4721)])
def test_similarity_has_three_measures(mode: Any, value: float) -> None:
    assert Sync().similarity([3.0, 4.0], [1.0, 0.0], mode) == pytest.approx(value, abs=1e-3)
    assert Sync().similarity([0.0], [0.0]) == 0.0


def test_a_cache_is_asked_before_the_model() -> None:
    cache: dict[str, Any] = {}
    model = Batches(requests=[], embeddings_cache=cache)
    assert model.get_text_embedding_batch(["a", "bb"]) == model.get_text_embedding_batch(["a", "bb"]) == [[1.0], [2.0]]
    assert model.get_text_embedding_batch(["a", "ccc"]) == [[1.0], [3.0]]
    assert model.requests == [["a", "bb"], ["ccc"]]
    assert asyncio.run(model.aget_text_embedding_batch(["a"])) == [[1.0]]
    again = Batches(requests=[], embeddings_cache=cache, embed_batch_size=3, num_workers=2)
    assert (again.get_text_embedding("a"), again.requests) == ([1.0], [])
    other = Batches(requests=[], embeddings_cache=cache, model_name="other")
    other.get_text_embedding("a")
    assert other.requests == [["a"]]


def test_each_batch_is_told_to_listeners_without_keys() -> None:
    heard: list[Any] = []

    class Listener(BaseEventHandler):
        def handle(self, event: Any, **_: Any) -> None:
            heard.append(event)

    dispatcher, listener = get_dispatcher("batonflow.retrieval"), Listener()
    dispatcher.add_event_handler(listener)
    try:
        Sync(embed_batch_size=2).get_text_embedding_batch(["a", "b", "c"])
    finally:
        dispatcher.event_handlers.remove(listener)
    assert [event.class_name() for event in heard] == ["EmbeddingStartEvent", "EmbeddingEndEvent"] * 2
    assert (heard[1].chunks, heard[1].embeddings) == (["a", "b"], [[1.0], [1.0]])
    assert "api_key" not in json.dumps(OpenAIEmbedding(api_key="sk-secret").to_dict(mode="json"))


def test_words_have_vectors_without_a_model() -> None:
    model = WordsEmbedding()
    tides, moon, bread = map(model.get_text_embedding, ("the tides of the moon", "moon and tide", "bread and yeast"))
    assert len(tides) == 1024
    assert model.similarity(tides, tides) == pytest.approx(1.0)
    assert model.similarity(tides, moon) > model.similarity(tides, bread)


def test_a_function_of_another_library_is_a_model() -> None:
    model = CallableEmbedding(lambda texts: [(len(text), 1) for text in texts], lambda texts: [(0, 0)], model_name="m")
    assert (model.get_text_embedding("abc"), model.get_query_embedding("abc")) == ([3.0, 1.0], [0.0, 0.0])
    assert model.get_text_embedding_batch(["a", "bb"]) == [[1.0, 1.0], [2.0, 1.0]]


def test_names_and_settings_give_models(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    model = Sync()
    assert resolve_embed_model(model) is model
    assert resolve_embed_model("openai:some-model").model_name == "some-model"
    assert isinstance(resolve_embed_model("default"), WordsEmbedding)
    monkeypatch.setenv("IS_TESTING", "1")
    assert resolve_embed_model("default") == MockEmbedding(embed_dim=8)
    assert resolve_embed_model(None) == MockEmbedding(embed_dim=1)
    assert "embeddings are switched off" in caplog.text
    with pytest.raises(ValueError, match="'other' is not an embedding model"):
        resolve_embed_model("other")
    assert Settings.embed_model is None


class Server(BaseHTTPRequestHandler):
    asked: list[Any] = []
    at_once = most_at_once = 0

    def do_POST(self) -> None:
        Server.at_once += 1
        Server.most_at_once = max(Server.most_at_once, Server.at_once)
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.asked.append((self.path, self.headers["authorization"], body))
        rows = [
            {"object": "embedding", "index": at, "embedding": [float(len(text))]}
            for at, text in enumerate(body["input"])
        ]
        answer = {"object": "list", "data": rows[::-1], "model": "m", "usage": {"prompt_tokens": 7, "total_tokens": 7}}
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        Server.at_once -= 1
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None: ...  # noqa: A002 - the name of the base


@pytest.fixture
def server() -> Iterator[str]:
    serving = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=serving.serve_forever)
    thread.start()
    Server.asked.clear()
    Server.at_once = Server.most_at_once = 0
    yield f"http://127.0.0.1:{serving.server_port}/v1"
    serving.shutdown()
    thread.join()
    serving.server_close()


def test_a_server_with_the_protocol_of_openai_is_asked(server: str) -> None:
    model = OpenAIEmbedding("m", base_url=server, api_key="sk-secret", dimensions=1)
    with track_usage() as usage:
        assert model.get_text_embedding_batch(["a", "bbb"]) == [[1.0], [3.0]]
    [(path, key, body)] = Server.asked
    assert (path, key) == ("/v1/embeddings", "Bearer sk-secret")
    assert (body["model"], body["input"], body["dimensions"]) == ("m", ["a", "bbb"], 1)
    assert usage.usage.input_tokens == 7


async def test_requests_keep_to_the_limits_of_models(server: str) -> None:
    ended: list[tuple[int, int | None]] = []

    class Noting(RateLimits):
        def release(self, reserved: int, used: int | None) -> None:
            ended.append((reserved, used))
            super().release(reserved, used)

    limits = Noting(max_concurrency=1)
    model = OpenAIEmbedding("m", base_url=server, api_key="sk-secret", limits=limits, embed_batch_size=1, num_workers=4)
    texts = ["a" * 40, "b" * 80, "c"]
    assert await model.aget_text_embedding_batch(texts) == [[40.0], [80.0], [1.0]]
    assert sorted(ended) == [(0, 7), (10, 7), (20, 7)]
    assert Server.most_at_once == 1
    assert "limits" not in model.to_dict()
