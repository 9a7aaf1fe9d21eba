"""Models as data: the settings they were made with, no secrets, and models made of them again."""

import json
import warnings
from typing import Any

import pytest
from pydantic import SecretStr

from batonflow.llms import (
    LLM,
    Anthropic,
    ChatMessage,
    ChatResponse,
    FallbackLLM,
    LLMMetadata,
    MissingKeyError,
    MockFunctionCallingLLM,
    MockLLM,
    OpenAI,
)


class Vendor(LLM):
    """A model of a program's own, with secrets in fields that do not say so."""

    api_key: str
    pin: SecretStr = SecretStr("1234")
    options: dict[str, Any] = {}
    note: str = "plain"
    max_tokens: int = 8

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata()

    def chat(self, messages: Any, **kwargs: Any) -> ChatResponse:
        return ChatResponse(message=ChatMessage("hi", role="assistant"))


def test_the_data_are_the_settings_and_the_name_of_the_class() -> None:
    data = MockLLM(max_tokens=4, system_prompt="Be brief.").to_dict()
    assert data == {
        "system_prompt": "Be brief.",
        "pydantic_program_mode": "default",
        "structured_retries": 2,
        "max_tokens": 4,
        "is_chat_model": False,
        "class_name": "MockLLM",
    }


def test_each_form_says_the_same_and_none_is_deprecated() -> None:
    llm = MockLLM(max_tokens=4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert llm.dict() == llm.to_dict() == json.loads(llm.to_json()) == json.loads(llm.json())


def test_a_part_can_be_left_out() -> None:
    assert "max_tokens" not in MockLLM(max_tokens=4).to_dict(exclude={"max_tokens"})


@pytest.mark.parametrize("llm", [MockLLM(max_tokens=4), MockFunctionCallingLLM(is_chat_model=True)])
def test_a_model_is_made_of_its_data_again(llm: LLM) -> None:
    for again in (type(llm).from_dict(llm.to_dict()), type(llm).from_json(llm.to_json())):
        assert type(again) is type(llm)
        assert again.to_dict() == llm.to_dict()


def test_what_is_given_beside_the_data_goes_before_them_and_leaves_them_as_they_are() -> None:
    data = MockLLM(max_tokens=4).to_dict()
    assert MockLLM.from_dict(data, max_tokens=5).max_tokens == 5
    assert MockLLM.from_json(json.dumps(data), max_tokens=5).max_tokens == 5
    assert data["max_tokens"] == 4
    assert data["class_name"] == "MockLLM"


@pytest.mark.parametrize("kind", [OpenAI, Anthropic])
def test_no_key_header_or_password_of_a_vendor_comes_out(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    llm = kind(
        "m-1",
        api_key="hidden-key",
        base_url="https://ann:hidden-word@here.example/v1",
        default_headers={"Authorization": "Bearer hidden-token"},
        additional_kwargs={"extra_headers": {"x": "hidden-header"}},
    )
    assert "hidden" not in llm.to_json()
    with pytest.raises(MissingKeyError):
        kind.from_dict(llm.to_dict())
    again = kind.from_dict(llm.to_dict(), api_key="other")
    assert again.to_dict() == llm.to_dict()
    assert again.api_key.get_secret_value() == "other"


def test_secrets_in_the_fields_of_a_model_of_ones_own_do_not_come_out() -> None:
    llm = Vendor(api_key="hidden", options={"password": "hidden", "size": 3})
    data = llm.to_dict()
    assert "hidden" not in str(data)
    assert not {"api_key", "pin"} & set(data)
    assert data["options"]["size"] == 3
    assert (data["note"], data["max_tokens"]) == ("plain", 8)
    assert Vendor.from_dict(data, api_key="k").note == "plain"


def test_parts_of_the_program_are_no_data() -> None:
    llm = MockLLM(completion_to_prompt=str.upper, callback_manager=object(), output_parser=object())
    assert llm.to_dict() == MockLLM().to_dict()
    assert "blocks_to_content_callback" not in MockFunctionCallingLLM().to_dict()


def test_the_models_in_a_model_come_out_without_secrets_too() -> None:
    assert "hidden" not in FallbackLLM([OpenAI("m-1", api_key="hidden"), Vendor(api_key="hidden")]).to_json()


def test_no_part_of_it_holds_a_secret_or_a_mark_of_one() -> None:
    model = Vendor(
        api_key="SECRET0",
        note="https://proxy/v1?key=SECRET1",
        options={"session": {"access_token": "SECRET2", "id": 1}, "dsn": "postgres://ann:SECRET3@host/db"},
        pin=SecretStr("SECRET4"),
    )
    for mode in ("python", "json"):
        data = model.to_dict(mode=mode)
        assert (data["note"], data["options"]) == ("https://proxy/v1", {"session": {"id": 1}})
        assert not {"pin", "api_key"} & data.keys()
        assert "SECRET" not in str(data)
        assert "redacted" not in str(data)


@pytest.mark.parametrize(
    "name", ["code", "access-code", "sig", "signature", "api_key", "subscription-key", "pwd", "jwt"]
)
def test_keys_in_addresses_do_not_come_out(name: str) -> None:
    note = Vendor(api_key="k", note=f"https://h/v1?{name}=hidden&api-version=2&encoding=utf8").to_dict()["note"]
    assert note == "https://h/v1?api-version=2&encoding=utf8"


@pytest.mark.parametrize(
    "text",
    [
        "https://docs.x/manual?key=a is the manual. Answer from it only.",
        "Replace every name by [redacted].",
        "https://a.openai.azure.com/openai?api-version=2024-10-21",
    ],
)
def test_texts_stay_as_they_are(text: str) -> None:
    assert Vendor(api_key="k", note=text).to_dict()["note"] == text
