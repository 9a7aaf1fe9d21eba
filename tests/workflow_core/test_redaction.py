"""Redaction: what looks like a secret does not come through, and what does not, does."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr

from batonflow.workflow_core.instrumentation.redaction import REDACTED, redacted


class Login(BaseModel):
    user: str
    password: str
    pin: SecretStr


@pytest.mark.parametrize(
    "name",
    ["api_key", "apiKey", "X-Api-Key", "password", "PASSWORD", "secret", "client_secret", "access_token", "accessToken",
     "Authorization", "cookie", "refresh_token", "private_key", "credentials", "token", "session_token"],
)  # fmt: skip
def test_values_under_names_of_secrets(name: str) -> None:
    assert redacted({name: "hunter2", "user": "ann"}) == {name: REDACTED, "user": "ann"}


@pytest.mark.parametrize("name", ["keyboard", "tokens_used", "secretary", "author", "passwordless", "monkey", "key"])
def test_other_names(name: str) -> None:
    assert redacted({name: "hunter2"}) == {name: "hunter2"}


def test_a_number_of_tokens_is_no_secret() -> None:
    assert redacted({"tokens": 17, "max_token": 100}) == {"tokens": 17, "max_token": 100}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("use sk-abcdefghijklmnop1234 now", f"use {REDACTED} now"),
        ("Authorization: Bearer abcdef.ghijkl-mnopqr", f"Authorization: Bearer {REDACTED}"),
        ("postgres://ann:hunter2@db/tides", f"postgres://{REDACTED}@db/tides"),
        ("ghp_abcdefghijklmnop1234", REDACTED),
        ("AKIAABCDEFGHIJKLMNOP", REDACTED),
        ("-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----", REDACTED),
        ("https://example.com/tides?hour=6", "https://example.com/tides?hour=6"),
        ("ask-the-moon-about-everything", "ask-the-moon-about-everything"),
    ],
)
def test_texts_in_the_form_of_secrets(text: str, shown: str) -> None:
    assert redacted(text) == shown
    assert redacted({"deep": [text]}) == {"deep": [shown]}


def test_models_and_their_secrets() -> None:
    login = Login(user="ann", password="hunter2", pin=SecretStr("1234"))
    assert redacted([login]) == [{"user": "ann", "password": REDACTED, "pin": REDACTED}]


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
