"""Synthesizers: answers from nodes, by mode."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import BaseModel

from batonflow.instrumentation import get_dispatcher
from batonflow.instrumentation.events.base import BaseEvent
from batonflow.llms import LLMConfigurationError, Settings
from batonflow.llms.prompts import PromptTemplate
from batonflow.nodes import AsyncStreamingResponse, PydanticResponse, Response, StreamingResponse
from batonflow.retrieval.prompt_helper import PromptHelper
from batonflow.retrieval.synthesizers import (
    Accumulate,
    BaseSynthesizer,
    CompactAndRefine,
    Refine,
    ResponseMode,
    SimpleSummarize,
    TreeSummarize,
    get_response_synthesizer,
)
from tests.retrieval.passages import BREAD, SEA, answering, numbering, prompts_to, scored

QA = PromptTemplate("qa|{query_str}|{context_str}", prompt_type="text_qa")
REFINE = PromptTemplate("refine|{query_str}|{existing_answer}|{context_msg}", prompt_type="refine")
SUMMARY = PromptTemplate("sum|{query_str}|{context_str}")
SIMPLE = PromptTemplate("simple|{query_str}")
TEMPLATES: dict[str, Any] = {
    "text_qa_template": QA, "refine_template": REFINE, "summary_template": SUMMARY, "simple_template": SIMPLE,
}  # fmt: skip

ONE = "<passage 1>\nThe moon pulls the sea.\n</passage 1>"
TWO = "<passage 2>\nBread needs yeast.\n</passage 2>"


class Tide(BaseModel):
    mover: str


@pytest.mark.parametrize(
    ("mode", "requests", "answer"),
    [
        ("refine", [f"qa|q|{ONE}", f"refine|q|1|{TWO}"], "2"),
        ("compact", [f"qa|q|{ONE}\n\n{TWO}"], "1"),
        ("simple_summarize", [f"qa|q|{ONE}\n{TWO}"], "1"),
        ("tree_summarize", [f"sum|q|{ONE}\n\n{TWO}"], "1"),
        ("generation", ["simple|q"], "1"),
        ("accumulate", [f"qa|q|{ONE}", f"qa|q|{TWO}"], "Response 1: 1\n---------------------\nResponse 2: 2"),
        ("compact_accumulate", [f"qa|q|{ONE}\n\n{TWO}"], "Response 1: 1"),
        ("no_text", [], ""),
        ("context_only", [], f"{SEA}\n\n{BREAD}"),
    ],
)
async def test_each_mode_has_its_requests(mode: str, requests: list[str], answer: str) -> None:
    for is_async in (False, True):
        llm = numbering()
        made = get_response_synthesizer(llm, response_mode=mode, **TEMPLATES)
        nodes = scored(SEA, BREAD)
        response = (
            await made.asynthesize("q", nodes) if is_async else await asyncio.to_thread(made.synthesize, "q", nodes)
        )
        assert prompts_to(llm) == requests
        assert response == Response(answer, source_nodes=nodes, metadata={"n1": {}, "n2": {}})


def test_an_unknown_mode_is_an_error() -> None:
    with pytest.raises(ValueError, match="Unknown mode: loud"):
        get_response_synthesizer(response_mode="loud")


@pytest.mark.parametrize("mode", list(ResponseMode))
def test_the_default_is_the_model_of_the_settings_and_modes_without_requests_need_none(mode: str) -> None:
    made = get_response_synthesizer(response_mode=mode)
    if mode in ("no_text", "context_only"):
        assert isinstance(made.synthesize("q", scored(SEA)), Response)
        return
    with pytest.raises(LLMConfigurationError, match="pass llm="):
        made.synthesize("q", scored(SEA))
    Settings.llm = answering("set")
    try:
        assert "set" in str(get_response_synthesizer(response_mode=mode).synthesize("q", scored(SEA)))
    finally:
        Settings.llm = None


def test_compact_repacks_what_fits() -> None:
    llm = numbering()
    helper = PromptHelper(49, 10, chunk_overlap_ratio=0.0, tokenizer=str.split)
    texts = [" ".join([letter] * 8) for letter in "abc"]
    CompactAndRefine(llm, prompt_helper=helper, text_qa_template=QA, refine_template=REFINE).synthesize(
        "q", scored(*texts)
    )
    first, second = prompts_to(llm)
    assert texts[0] in first
    assert texts[1] in first
    assert texts[2] not in first
    assert second.startswith("refine|q|1|<passage 3>")


def test_refine_cuts_a_chunk_that_does_not_fit() -> None:
    llm = numbering()
    helper = PromptHelper(40, 10, chunk_overlap_ratio=0.0, tokenizer=str.split)
    made = Refine(llm, prompt_helper=helper, text_qa_template=QA, refine_template=REFINE)
    made.synthesize("q", scored(" ".join(["w"] * 60)))
    assert [one.split("|")[0] for one in prompts_to(llm)] == ["qa", "refine", "refine"]
    assert sum(one.replace("|", " ").split().count("w") for one in prompts_to(llm)) >= 58  # marks touch words


def test_simple_summarize_cuts_texts_so_that_all_fit() -> None:
    llm = numbering()
    helper = PromptHelper(61, 10, tokenizer=str.split)
    SimpleSummarize(llm, prompt_helper=helper, text_qa_template=QA).synthesize("q", scored("a " * 90, "b " * 90))
    (sent,) = prompts_to(llm)
    assert sent.count("a ") == sent.count("b ") > 5
    assert len(sent.split()) < 51


def test_tree_summarize_asks_again_on_the_answers_until_one_is_left() -> None:
    llm = numbering()
    helper = PromptHelper(31, 10, chunk_overlap_ratio=0.0, tokenizer=str.split)
    made = TreeSummarize(llm, prompt_helper=helper, summary_template=SUMMARY)
    response = made.synthesize("q", scored(*(" ".join([letter] * 8) for letter in "abc")))
    sent = prompts_to(llm)
    assert [letter in " ".join(sent[:3]) for letter in "abc"] == [True] * 3
    assert len(sent) == 3 + 1
    assert str(response) == "4"


def test_tree_summarize_ends_when_answers_are_as_long_as_texts() -> None:
    llm = numbering(lambda number: f"{number} " * 12)
    helper = PromptHelper(35, 10, chunk_overlap_ratio=0.0, tokenizer=str.split)
    made = TreeSummarize(llm, prompt_helper=helper, summary_template=SUMMARY)
    assert str(made.synthesize("q", scored("a " * 12, "b " * 12))).startswith("3 ")


@pytest.mark.parametrize("mode", ["tree_summarize", "accumulate"])
async def test_requests_that_do_not_depend_on_each_other_are_sent_at_once(mode: str) -> None:
    waiting = 0
    both = asyncio.Event()

    async def turn(request: Any) -> str:
        nonlocal waiting
        waiting += 1
        if waiting == 2:
            both.set()
        await both.wait()
        return "ok"

    helper = PromptHelper(31, 10, chunk_overlap_ratio=0.0, tokenizer=str.split)
    made = get_response_synthesizer(answering(*[turn] * 9), helper, response_mode=mode, **TEMPLATES)
    await asyncio.wait_for(made.asynthesize("q", scored("a " * 8, "b " * 8)), 5)


@pytest.mark.parametrize("mode", ["refine", "compact", "simple_summarize", "tree_summarize", "generation"])
async def test_the_last_request_streams(mode: str) -> None:
    made = get_response_synthesizer(numbering(lambda number: f"answer {number}"), response_mode=mode, streaming=True)
    nodes = scored(SEA, BREAD)
    whole = await asyncio.to_thread(made.synthesize, "q", nodes)
    assert isinstance(whole, StreamingResponse)
    assert whole.source_nodes == nodes
    pieces = await asyncio.to_thread(lambda: list(whole.response_gen or ()))
    assert len(pieces) == 2
    asked = await made.asynthesize("q", nodes)
    assert isinstance(asked, AsyncStreamingResponse)
    assert "".join([piece async for piece in asked.async_response_gen()]).startswith("answer")


@pytest.mark.parametrize("mode", ["accumulate", "compact_accumulate"])
def test_answers_to_several_texts_cannot_be_streamed(mode: str) -> None:
    with pytest.raises(ValueError, match="Unable to stream"):
        get_response_synthesizer(response_mode=mode, streaming=True)


async def test_without_nodes_the_response_is_empty() -> None:
    llm = answering("made up")
    assert str(await Refine(llm).asynthesize("q", [])) == "Empty Response"
    assert str(await Refine(llm, empty_response="Nothing.").asynthesize("q", [])) == "Nothing."
    streamed = await Refine(llm, streaming=True).asynthesize("q", [])
    assert isinstance(streamed, AsyncStreamingResponse)
    assert [piece async for piece in streamed.async_response_gen()] == ["Empty Response"]
    assert "".join(Refine(llm, streaming=True).synthesize("q", []).response_gen) == "Empty Response"  # type: ignore[union-attr,arg-type]
    assert str(await get_response_synthesizer(llm, response_mode="generation").asynthesize("q", [])) == "made up"


async def test_models_read_the_content_for_models_and_further_sources_are_only_sources() -> None:
    llm = answering("ok")
    nodes = scored(SEA, metadata={"page": 3, "secret": 7}, excluded_llm_metadata_keys=["secret"])
    further = scored(BREAD)
    response = await CompactAndRefine(llm).asynthesize("q", nodes, further)
    (sent,) = prompts_to(llm)
    assert "page: 3" in sent
    assert "secret" not in sent
    assert BREAD not in sent
    assert response.source_nodes == [*nodes, *further]


async def test_the_answer_may_be_an_object() -> None:
    for mode in ("compact", "refine", "tree_summarize", "simple_summarize"):
        llm = answering('{"mover": "moon"}', '{"mover": "moon"}')
        made = get_response_synthesizer(llm, response_mode=mode, output_cls=Tide)
        response = await made.asynthesize("q", scored(SEA))
        assert isinstance(response, PydanticResponse)
        assert response.response == Tide(mover="moon")


class TestFiltering:
    async def test_texts_that_do_not_satisfy_the_question_leave_the_answer(self) -> None:
        verdicts = ['{"answer": "yeast", "query_satisfied": false}', '{"answer": "moon", "query_satisfied": true}']
        llm = answering(*verdicts)
        made = Refine(llm, structured_answer_filtering=True, text_qa_template=QA, refine_template=REFINE)
        assert str(await made.asynthesize("q", scored(BREAD, SEA))) == "moon"
        # The first text gave no answer, so the second one is the first again.
        assert [one.split("|")[0] for one in prompts_to(llm)] == ["qa", "qa"]

    async def test_without_a_satisfying_text_the_response_is_empty(self) -> None:
        llm = answering('{"answer": "?", "query_satisfied": false}')
        assert (
            str(await Refine(llm, structured_answer_filtering=True).asynthesize("q", scored(SEA))) == "Empty Response"
        )

    async def test_a_program_may_make_the_request(self) -> None:
        def factory(prompt: Any) -> Any:
            return lambda **values: {"answer": prompt.format(**values), "query_satisfied": True}

        made = Refine(answering(), text_qa_template=QA, structured_answer_filtering=True, program_factory=factory)
        assert str(await made.asynthesize("q", scored(SEA))) == f"qa|q|{ONE}"

    @pytest.mark.parametrize("mode", ["refine", "compact", "accumulate"])
    def test_a_program_needs_filtering(self, mode: str) -> None:
        with pytest.raises(ValueError, match="without structured answer filtering"):
            get_response_synthesizer(answering(), response_mode=mode, program_factory=lambda prompt: prompt)


def test_prompts_are_read_and_replaced_by_name() -> None:
    llm = answering("1")
    made = CompactAndRefine(llm)
    assert set(made.get_prompts()) == {"text_qa_template", "refine_template"}
    made.update_prompts({"text_qa_template": QA})
    made.synthesize("q", scored(SEA))
    assert prompts_to(llm) == [f"qa|q|{ONE}"]
    assert set(TreeSummarize(llm).get_prompts()) == {"summary_template"}
    with pytest.raises(TypeError, match="summary_template"):
        CompactAndRefine(llm, summary_template=SUMMARY)


async def test_further_arguments_are_values_for_the_prompt() -> None:
    llm = answering("1")
    made = CompactAndRefine(llm, text_qa_template=PromptTemplate("{tone}|{query_str}|{context_str}"))
    await made.asynthesize("q", scored(SEA), tone="kind")
    assert prompts_to(llm) == [f"kind|q|{ONE}"]


class TestOwnSynthesizers:
    async def test_one_of_the_two_methods_is_enough(self) -> None:
        class Sync(BaseSynthesizer):
            def get_response(self, query_str: str, text_chunks: Sequence[str], **kwargs: Any) -> str:
                return f"{query_str} {len(text_chunks)}"

        class Async(BaseSynthesizer):
            async def aget_response(self, query_str: str, text_chunks: Sequence[str], **kwargs: Any) -> str:
                return f"{query_str} {len(text_chunks)}"

        for made in (Sync(), Async()):
            assert str(await made.asynthesize("q", scored(SEA, BREAD))) == "q 2"
            assert str(made.synthesize("q", scored(SEA, BREAD))) == "q 2"

    async def test_the_method_that_a_subclass_of_ours_writes_is_called(self) -> None:
        class Mine(TreeSummarize):
            def get_response(self, query_str: str, text_chunks: Sequence[str], **kwargs: Any) -> str:
                return f"mine: {super().get_response(query_str, text_chunks, **kwargs)}"

        made = Mine(answering("ok", "ok"))
        assert str(await made.asynthesize("q", scored(SEA))) == "mine: ok"
        assert str(await asyncio.to_thread(made.synthesize, "q", scored(SEA))) == "mine: ok"

    def test_none_of_them_is_an_error(self) -> None:
        with pytest.raises(TypeError, match="write get_response or aget_response"):
            BaseSynthesizer()

    async def test_an_overridden_predict_is_called(self) -> None:
        class Echo(type(answering())):  # type: ignore[misc]
            def predict(self, prompt: Any, **values: Any) -> str:
                return f"{prompt.metadata['prompt_type']} of {len(values)}"

        assert (
            str(await CompactAndRefine(Echo([]), text_qa_template=QA).asynthesize("q", scored(SEA))) == "text_qa of 1"
        )


async def test_a_failed_request_cancels_the_others() -> None:
    over: list[bool] = []

    async def slow(request: Any) -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            over.append(True)
            raise
        return "late"

    async def fails(request: Any) -> str:
        await asyncio.sleep(0.01)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await Accumulate(answering(slow, fails)).asynthesize("q", scored(SEA, BREAD))
    await asyncio.sleep(0)
    assert over == [True]


async def test_listeners_hear_of_both_calls() -> None:
    heard: list[BaseEvent] = []

    class Listener:
        def class_name(self) -> str:
            return "Listener"

        def handle(self, event: BaseEvent, **_: Any) -> None:
            heard.append(event)

    root = get_dispatcher("root")
    handlers = list(root.event_handlers)
    root.add_event_handler(Listener())  # type: ignore[arg-type]
    try:
        await CompactAndRefine(answering("1")).asynthesize("q", scored(SEA))
    finally:
        root.event_handlers[:] = handlers
    names = [
        type(one).__name__ for one in heard if "Synthesize" in type(one).__name__ or "Response" in type(one).__name__
    ]
    assert names == ["SynthesizeStartEvent", "GetResponseStartEvent", "GetResponseEndEvent", "SynthesizeEndEvent"]
