"""LazyFields: what is left out is made once, when somebody looks, and nobody can tell the difference."""

import copy
import pickle
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from batonflow.llms import ChatMessage, ChatResponse
from batonflow.llms.lazy_fields import LazyFields


class Piece(LazyFields):
    delta: str
    text: str
    length: int = 0


class Holder(BaseModel):
    model_config = ConfigDict(revalidate_instances="never")

    piece: Piece


WHOLE = Piece(delta="c", text="abc", length=3)


@pytest.fixture
def made() -> list[int]:
    return []


@pytest.fixture
def piece(made: list[int]) -> Piece:
    def rest(mark: int) -> dict[str, Any]:
        made.append(mark)
        return {"text": "abc", "length": 3}

    return Piece.partial(rest, {"delta": "c", "_mark": 1})


def test_what_is_there_is_read_without_making_the_rest(piece: Piece, made: list[int]) -> None:
    assert (piece.delta, piece.is_partial, made) == ("c", True, [])


def test_the_rest_is_made_once(piece: Piece, made: list[int]) -> None:
    assert (piece.text, piece.length, piece.text) == ("abc", 3, "abc")
    assert (made, piece.is_partial) == ([1], False)


LOOKS: dict[str, Callable[[Piece], Any]] = {
    "equal": lambda piece: piece == WHOLE,
    "equal from the other side": lambda piece: piece == WHOLE,
    "repr": lambda piece: repr(piece) == repr(WHOLE),
    "dump": lambda piece: piece.model_dump() == WHOLE.model_dump(),
    "dump of what is set": lambda piece: piece.model_dump(exclude_unset=True) == WHOLE.model_dump(),
    "json": lambda piece: piece.model_dump_json() == WHOLE.model_dump_json(),
    "inside another model": lambda piece: Holder(piece=piece).model_dump() == Holder(piece=WHOLE).model_dump(),
    "copy": lambda piece: copy.copy(piece) == WHOLE,
    "deep copy": lambda piece: copy.deepcopy(piece) == WHOLE,
    "copy with a change": lambda piece: piece.model_copy(update={"delta": "d"}).text == "abc",
    "pickle": lambda piece: pickle.loads(pickle.dumps(piece)) == WHOLE,
    "iteration": lambda piece: dict(piece) == dict(WHOLE),
    "order of the fields": lambda piece: [*dict(piece)] == ["delta", "text", "length"],
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS.keys())
def test_it_looks_like_one_that_was_made_at_once(piece: Piece, look: Callable[[Piece], bool]) -> None:
    assert look(piece)


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS.keys())
def test_one_that_has_all_and_knows_of_what_it_was_made_looks_no_different(look: Callable[[Piece], bool]) -> None:
    def rest(_: int) -> dict[str, Any]:
        raise AssertionError("there is nothing left to make")

    whole = Piece.partial(rest, {"delta": "c", "text": "abc", "length": 3, "_mark": 1})
    assert whole.source is rest
    assert look(whole)


def test_what_is_no_field_is_missing_as_on_every_model(piece: Piece) -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        _ = piece.nonsense  # pyright: ignore[reportAttributeAccessIssue]


def test_a_response_is_what_the_constructor_makes() -> None:
    message = ChatMessage("abc", role="assistant")
    piece = ChatResponse.piece(lambda _: {"message": message}, "c", None, {})
    assert piece == ChatResponse(message=message, delta="c")
    assert ChatResponse.model_validate_json(piece.model_dump_json()) == piece


@pytest.fixture
def threads_take_turns_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("threads_take_turns_often")
def test_several_threads_may_read_one_at_the_same_time() -> None:
    def rest(mark: int) -> dict[str, Any]:
        return {"text": "a" * mark, "length": mark}

    pieces = [Piece.partial(rest, {"delta": "c", "_mark": number}) for number in range(5_000)]
    together = Barrier(2)

    def read(field: str) -> list[Any]:
        together.wait()
        return [getattr(piece, field) for piece in pieces]

    with ThreadPoolExecutor(2) as pool:
        texts, lengths = pool.map(read, ["text", "length"])
    assert lengths == [*range(5_000)]
    assert texts == ["a" * number for number in range(5_000)]
