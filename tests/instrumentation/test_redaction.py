"""Redaction: what looks like a secret does not come through, and what does not, does."""

import json
from collections import UserDict
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr

from batonflow.instrumentation import redaction
from batonflow.instrumentation.redaction import CYCLE, REDACTED, TOO_DEEP, redacted, without_secrets


class Login(BaseModel):
    user: str
    password: str
    pin: SecretStr


@pytest.mark.parametrize(
    "name",
    ["api_key", "apiKey", "X-Api-Key", "password", "PASSWORD", "secret", "client_secret", "access_token", "accessToken",
     "Authorization", "cookie", "refresh_token", "private_key", "credentials", "token", "session_token", "secret_key",
     "passphrase", "passphrases", "api_keys", "apiKeys", "private_keys", "SECRET_ACCESS_KEY", "secretKeys"],
)  # fmt: skip
def test_values_under_names_of_secrets(name: str) -> None:
    assert redacted({name: "hunter2", "user": "ann"}) == {name: REDACTED, "user": "ann"}


def test_entries_that_have_a_secret_in_them_can_be_left_out() -> None:
    data = {
        "user": "ann",
        "password": "hunter2",
        "pin": SecretStr("1"),
        "options": {"token": "hunter2", "size": 3, "hosts": ["a", "postgres://ann:hunter2@b/c"]},
    }
    assert without_secrets(data) == {"user": "ann", "options": {"size": 3, "hosts": ["a"]}}


@pytest.mark.parametrize("name", ["keyboard", "tokens_used", "secretary", "author", "passwordless", "monkey", "key"])
def test_other_names(name: str) -> None:
    assert redacted({name: "hunter2"}) == {name: "hunter2"}


@pytest.mark.parametrize(
    "secret", [["hunter2"], ("hunter2",), {"user": "ann", "word": "hunter2"}, {"hunter2"}, b"hunter2", [["hunter2"]]]
)
@pytest.mark.parametrize("name", ["passwords", "credentials", "api_keys"])
def test_whatever_lies_under_names_of_secrets(name: str, secret: Any) -> None:
    assert redacted({name: secret}) == {name: REDACTED}


def test_numbers_and_what_is_not_there_are_no_secrets() -> None:
    harmless = {"tokens": 17, "max_token": 100, "token": None, "password": True, "id_tokens": 0.5}
    assert redacted(harmless) == harmless


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("use sk-abcdefghijklmnop1234 now", f"use {REDACTED} now"),
        ("Authorization: Bearer abcdef.ghijkl-mnopqr", f"Authorization: Bearer {REDACTED}"),
        ("postgres://ann:hunter2@db/tides", f"postgres://{REDACTED}@db/tides"),
        ("ghp_abcdefghijklmnop1234", REDACTED),
        *((f"gh{kind}{dash}abcdefghijklmnop1234", REDACTED) for kind in "pousr" for dash in "_-"),
        ("AKIAABCDEFGHIJKLMNOP", REDACTED),
        ("-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----", REDACTED),
        ("https://example.com/tides?hour=6", "https://example.com/tides?hour=6"),
        ("ask-the-moon-about-everything", "ask-the-moon-about-everything"),
    ],
)
def test_texts_in_the_form_of_secrets(text: str, shown: str) -> None:
    assert redacted(text) == shown
    assert redacted({"deep": [text]}) == {"deep": [shown]}


@pytest.mark.parametrize("word", ["ghost", "laughs", "highs", "through", "ghru"])
def test_the_pattern_of_secrets_is_not_searched_in_words(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[str] = []

    class Pattern:
        def sub(self, _: str, text: str) -> str:
            searched.append(text)
            return text

    monkeypatch.setattr(redaction, "_VALUES", Pattern())
    redacted(f"a {word} in the night")
    assert searched == []


def test_models_and_their_secrets() -> None:
    login = Login(user="ann", password="hunter2", pin=SecretStr("1234"))
    assert redacted([login]) == [{"user": "ann", "password": REDACTED, "pin": REDACTED}]


@dataclass
class Account:
    user: str
    password: str
    others: list["Account"] = field(default_factory=list)


@dataclass(slots=True)
class Opened:
    token: str
    at: int = field(init=False)


def test_dataclasses_and_their_secrets() -> None:
    account = Account("ann", "hunter2", [Account("ben", "hunter3")])
    ben = {"user": "ben", "password": REDACTED, "others": []}
    assert redacted({"account": account}) == {"account": {"user": "ann", "password": REDACTED, "others": [ben]}}
    assert redacted([Opened("abc")]) == [{"token": REDACTED}]
    assert redacted(Account) == repr(Account)


def test_data_inside_of_itself() -> None:
    node: dict[str, Any] = {"user": "ann", "password": "hunter2"}
    node["self"] = [node]
    assert redacted(node) == {"user": "ann", "password": REDACTED, "self": [CYCLE]}
    ann = Account("ann", "hunter2")
    ann.others.append(ann)
    assert redacted(ann) == {"user": "ann", "password": REDACTED, "others": [CYCLE]}


class Mute:
    """It cannot say what it is."""

    def __repr__(self) -> str:
        raise RuntimeError("mute")


class Shut(UserDict[str, Any]):
    """It cannot say what is in it."""

    def items(self) -> Any:
        raise RuntimeError("shut")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"\xff", repr(b"\xff")),
        (Mute(), "<Mute>"),
        (Shut(password="hunter2"), "<Shut>"),
        ({1: b"\xff", 2: [Mute()]}, {"1": repr(b"\xff"), "2": ["<Mute>"]}),
        (b"\xff sk-" + b"a" * 20, f"b'\\xff {REDACTED}'"),
    ],
)
def test_what_has_no_form_in_json(value: Any, shown: Any) -> None:
    assert redacted(value) == shown
    assert redacted({"deep": [value]}) == {"deep": [shown]}
    assert without_secrets({"x": b"\xff"}) == {"x": repr(b"\xff")}


def test_data_of_very_many_levels_end_with_a_mark() -> None:
    data: dict[str, Any] = {"password": "hunter2"}
    for _ in range(100_000):
        data = {"in": [data]}
    text = json.dumps(redacted(data))
    assert TOO_DEEP in text
    assert "hunter2" not in text


def test_the_same_data_in_two_places_is_shown_in_both() -> None:
    tide = {"hour": 6}
    assert redacted([tide, tide]) == [tide, tide]


def test_what_the_program_says_is_a_secret_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_known", set())
    for secret in ("the colour of the sea", "short"):
        redaction.never_show(secret)
    said = {"error": "Wrong key: the colour of the sea.", "other": "a short word"}
    assert redacted(said) == {"error": f"Wrong key: {REDACTED}.", "other": "a short word"}


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("abc ", max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("xyz", max_size=4), inner, max_size=3),
)


@given(PLAIN)
def test_data_without_secrets_come_through_as_they_are(data: Any) -> None:
    assert redacted(data) == data


_FRAGMENTS = st.sampled_from(
    ["sk-", "pk-", "ghp_", "ghs-", "github_pat_", "xoxb-", "AKIA", "AIza", "Bearer ", "eyJ", "://", "a:b", "@", ".",
     " ", "-----BEGIN ", "PRIVATE KEY-----", "-----END PRIVATE KEY-----", "A1" * 10, "abcdefgh" * 4, "RSA ", "_", "-"]
)  # fmt: skip


@given(st.lists(_FRAGMENTS, max_size=6).map("".join))
def test_no_text_with_a_secret_is_passed_over(text: str) -> None:
    assert redacted(text) == redaction._VALUES.sub(REDACTED, text)
