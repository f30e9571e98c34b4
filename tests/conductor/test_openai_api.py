"""Request bodies: what is accepted, what is refused, and that the field is named."""

import json
from typing import Any

import pytest

from mooncake_core.conductor.openai_api import (
    ApiError,
    generation,
    read_chat,
    read_completion,
)

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def chat(**fields: Any) -> Any:
    return read_chat(json.dumps({**CHAT, **fields}).encode())


def refused(**fields: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        generation(chat(**fields))
    assert caught.value.status == 400
    return caught.value


def test_content_is_a_string_or_parts_of_text() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    body = chat(messages=[{"role": "user", "content": parts}])
    assert body.messages[0].text == "ab"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": -1}, "temperature"),
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": 1, "max_completion_tokens": 2}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"role": "tool", "content": "x", "tool_call_id": "t"}]}, "messages[0]."),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "messages[0].content[0]",
        ),
        ({"model": None}, "model"),
        ({"stop": ["a", "b", "c", "d", "e"]}, "stop"),
        ({"stop": ""}, "stop"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"n": 2}, "n"),
        ({"n": True}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"logit_bias": {"1": 2}}, "logit_bias"),
        ({"presence_penalty": 0.5}, "presence_penalty"),
        ({"frequency_penalty": -0.5}, "frequency_penalty"),
        ({"temprature": 0}, "temprature"),
        ({"prompt": "hi"}, "prompt"),
        ({"cache_salt": "x" * 300}, "cache_salt"),
    ],
)
def test_a_wrong_field_is_named(fields: dict[str, Any], param: str) -> None:
    error = refused(**fields)
    assert error.param is not None and error.param.startswith(param), error.param
    assert param.rstrip(".") in str(error)
    assert error.body()["error"]["type"] == "invalid_request_error"


def test_a_misspelt_field_is_told_its_neighbour() -> None:
    assert "'temperature'" in str(refused(temprature=0))


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 1},
        {"n": None},
        {"tools": []},
        {"tool_choice": "none"},
        {"logprobs": False},
        {"response_format": {"type": "text"}},
        {"presence_penalty": 0.0},
        {"user": "u", "metadata": {"a": "b"}},
        {"temperature": None, "stop": None, "max_tokens": None},
        {"messages": [{"role": "assistant", "content": "x", "refusal": None, "tool_calls": None}]},
    ],
)
def test_fields_that_ask_for_nothing_are_accepted(fields: dict[str, Any]) -> None:
    generation(chat(**fields))


@pytest.mark.parametrize("missing", ["model", "messages"])
def test_a_missing_field_is_named(missing: str) -> None:
    body = {name: value for name, value in CHAT.items() if name != missing}
    with pytest.raises(ApiError, match=f"missing field '{missing}'") as caught:
        read_chat(json.dumps(body).encode())
    assert caught.value.param == missing


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'"x"', b"\xff\xfe", b"[" * 100_000, b"{}x"])
def test_what_is_no_json_object_is_refused(data: bytes) -> None:
    with pytest.raises(ApiError, match="JSON"):
        read_chat(data)


@pytest.mark.parametrize("prompt", ["hi", ["hi"], [1, 2, 3]])
def test_a_prompt_is_a_string_one_string_or_tokens(prompt: Any) -> None:
    assert read_completion(json.dumps({"model": "m", "prompt": prompt}).encode()).prompt == prompt


@pytest.mark.parametrize("prompt", [["a", "b"], [["a"]], [[1]], 5, None, {"a": 1}, [1.5], ["a", 1]])
def test_other_prompts_are_refused(prompt: Any) -> None:
    with pytest.raises(ApiError, match="prompt"):
        read_completion(json.dumps({"model": "m", "prompt": prompt}).encode())


@pytest.mark.parametrize(
    ("field", "value"), [("echo", True), ("best_of", 2), ("suffix", "x"), ("logprobs", 3)]
)
def test_completion_fields_that_are_not_supported_are_named(field: str, value: Any) -> None:
    with pytest.raises(ApiError, match=f"{field} = .* is not supported"):
        read_completion(json.dumps({"model": "m", "prompt": "x", field: value}).encode())
