"""The OpenAI schema: reading request bodies, and building answers. Pure.

Nothing that would change the answer is ignored in silence: a field that is not supported is refused
unless its value asks for nothing, and so is a field that nobody knows, since it may be a misspelt
one. Fields that change no answer (`user`, `metadata` and the like) are accepted.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

Count = Annotated[int, Meta(ge=1, le=1 << 31)]


B = TypeVar("B", bound="CommonBody")


class ApiError(Exception):
    """An answer other than 200, in OpenAI's form."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code
        self.retry_after_s = retry_after_s

    def body(self) -> dict[str, Any]:
        """Return the error object."""
        return {
            "error": {
                "message": str(self),
                "type": _error_type(self.status),
                "param": self.param,
                "code": self.code,
            }
        }


def _error_type(status: int) -> str:
    if status == 429:
        return "rate_limit_error"
    return "invalid_request_error" if status < 500 else "server_error"


class TextPart(Struct, tag="text", tag_field="type", frozen=True):
    """A piece of a message's content."""

    text: str


class ChatMessage(Struct, frozen=True):
    """One message."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]

    @property
    def text(self) -> str:
        """The content as one string."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content)


class StreamOptions(Struct, frozen=True):
    """`stream_options`."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class CommonBody(Struct, frozen=True, kw_only=True):
    """What both kinds of request may hold; null is absent."""

    model: str
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Count | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1)] | None = None
    """An extension; 0 and -1 keep all."""
    seed: Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)] | None = None
    stop: str | list[str] | None = None
    cache_salt: Annotated[str, Meta(max_length=256)] | None = None
    """An extension: requests with different salts share no cached blocks."""


class ChatBody(CommonBody, frozen=True, kw_only=True):
    """POST /v1/chat/completions."""

    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    max_completion_tokens: Count | None = None


class CompletionBody(CommonBody, frozen=True, kw_only=True):
    """POST /v1/completions."""

    prompt: str | list[str | int]


# A field that is not supported -> values of it that ask for nothing.
_UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "audio": (),
    "best_of": (1,),
    "echo": (False,),
    "frequency_penalty": (0,),
    "function_call": ("none",),
    "functions": ([],),
    "logit_bias": ({},),
    "logprobs": (False,),
    "modalities": (["text"],),
    "n": (1,),
    "prediction": (),
    "presence_penalty": (0,),
    "reasoning_effort": ("none",),
    "response_format": ({"type": "text"},),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_logprobs": (0,),
    "web_search_options": (),
}
_WITHOUT_EFFECT = {
    "metadata",
    "parallel_tool_calls",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "store",
    "user",
}
_MESSAGE_FIELDS = {"role", "content", "name", "annotations"}
_MAX_STOPS = 4


@dataclass(frozen=True, kw_only=True)
class Generation:
    """What a body asks for, besides its prompt."""

    is_stream: bool
    includes_usage: bool
    max_tokens: int | None
    stops: tuple[str, ...]


def read_chat(data: bytes) -> ChatBody:
    """Return the body of a chat request.

    Raises:
        ApiError: it is wrong; `param` names the field.
    """
    return _read(data, ChatBody)


def read_completion(data: bytes) -> CompletionBody:
    """Return the body of a completion request.

    Raises:
        ApiError: it is wrong; `param` names the field.
    """
    return _read(data, CompletionBody)


def generation(body: ChatBody | CompletionBody) -> Generation:
    """Return what `body` asks for.

    Raises:
        ApiError: fields contradict each other.
    """
    stops = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    if len(stops) > _MAX_STOPS:
        raise ApiError(
            400, f"stop holds {len(stops)} strings; at most {_MAX_STOPS} are allowed", param="stop"
        )
    if "" in stops:
        raise ApiError(400, "stop holds an empty string", param="stop")
    if body.stream_options is not None and not body.stream:
        raise ApiError(
            400, "stream_options is only allowed when stream is true", param="stream_options"
        )
    max_tokens = body.max_tokens
    if isinstance(body, ChatBody) and body.max_completion_tokens is not None:
        if max_tokens is not None:
            raise ApiError(
                400,
                "max_tokens and max_completion_tokens mean the same; give one of them",
                param="max_tokens",
            )
        max_tokens = body.max_completion_tokens
    return Generation(
        is_stream=bool(body.stream),
        includes_usage=body.stream_options is not None and bool(body.stream_options.include_usage),
        max_tokens=max_tokens,
        stops=stops,
    )


def _read(data: bytes, kind: type[B]) -> B:
    try:
        raw = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError(400, f"the body is not valid JSON: {error}") from error
    if not isinstance(raw, dict):
        raise ApiError(400, "the body must be a JSON object")
    _refuse_unsupported(raw, set(kind.__struct_fields__))
    _refuse_batch(raw.get("prompt"))
    _refuse_in_messages(raw.get("messages"))
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise _explained(error) from error


def _refuse_unsupported(raw: dict[str, Any], known: set[str]) -> None:
    for name, value in raw.items():
        if name in known or name in _WITHOUT_EFFECT:
            continue
        if name not in _UNSUPPORTED:
            near = difflib.get_close_matches(name, known | set(_UNSUPPORTED), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ApiError(400, f"unknown field {name!r}{hint}", param=name, code="unknown_field")
        idle = _UNSUPPORTED[name]
        if value is not None and (value, value is True) not in [(x, x is True) for x in idle]:
            what = f"; only {' or '.join(map(repr, idle))} is" if idle else ""
            raise ApiError(
                400, f"{name} = {value!r} is not supported{what}", param=name, code="unsupported"
            )


def _refuse_in_messages(messages: Any) -> None:
    """Refuse what a message may hold elsewhere and would be lost here, such as tool calls."""
    for index, message in enumerate(messages if isinstance(messages, list) else ()):
        for name, value in message.items() if isinstance(message, dict) else ():
            if name not in _MESSAGE_FIELDS and value not in (None, [], ""):
                param = f"messages[{index}].{name}"
                raise ApiError(400, f"{param} is not supported", param=param, code="unsupported")


def _refuse_batch(prompt: Any) -> None:
    is_strings = isinstance(prompt, list) and any(isinstance(item, str) for item in prompt)
    if is_strings and len(prompt) != 1:
        raise ApiError(
            400, f"prompt holds {len(prompt)} strings; send one a request", param="prompt"
        )


_AT = re.compile(r" - at `\$\.?([^`]*)`$")
_MISSING = re.compile(r"Object missing required field `(\w+)`")


def _explained(error: msgspec.ValidationError) -> ApiError:
    """Turn msgspec's message into one that names the field as a user knows it."""
    text = str(error)
    at = _AT.search(text)
    param = at.group(1) if at else ""
    text = _AT.sub("", text)
    missing = _MISSING.match(text)
    if missing is not None:
        param = f"{param}.{missing.group(1)}".lstrip(".")
        return ApiError(400, f"missing field {param!r}", param=param, code="missing_field")
    return ApiError(400, f"{param}: {text}", param=param or None)


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Tokens of a request."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int

    def body(self) -> dict[str, Any]:
        """Return the usage object."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }


@dataclass(frozen=True, kw_only=True)
class AnswerForm:
    """How the answers to one request look."""

    is_chat: bool
    request_id: str
    model: str
    created_s: int
    includes_usage: bool

    def whole(self, text: str, reason: str, usage: Usage) -> dict[str, Any]:
        """Return the answer that is not streamed."""
        choice: dict[str, Any] = {"index": 0, "finish_reason": reason, "logprobs": None}
        if self.is_chat:
            choice["message"] = {"role": "assistant", "content": text, "refusal": None}
        else:
            choice["text"] = text
        return {**self._head(""), "choices": [choice], "usage": usage.body()}

    def opening(self) -> dict[str, Any] | None:
        """Return the first chunk, which names the speaker of a chat."""
        return self._chunk({"role": "assistant", "content": ""}, None) if self.is_chat else None

    def piece(self, text: str) -> dict[str, Any]:
        """Return a chunk with a piece of the answer."""
        return self._chunk({"content": text} if self.is_chat else text, None)

    def closing(self, reason: str) -> dict[str, Any]:
        """Return the chunk that says why the answer ended."""
        return self._chunk({} if self.is_chat else "", reason)

    def usage(self, usage: Usage) -> dict[str, Any]:
        """Return the chunk after the last, which holds the usage."""
        return {**self._head(".chunk"), "choices": [], "usage": usage.body()}

    def _chunk(self, content: dict[str, str] | str, reason: str | None) -> dict[str, Any]:
        name = "delta" if self.is_chat else "text"
        choice = {"index": 0, name: content, "finish_reason": reason, "logprobs": None}
        chunk = {**self._head(".chunk"), "choices": [choice]}
        # OpenAI: with include_usage every chunk has the field, null but in the last one.
        return {**chunk, "usage": None} if self.includes_usage else chunk

    def _head(self, suffix: str) -> dict[str, Any]:
        return {
            "id": self.request_id,
            "object": f"chat.completion{suffix}" if self.is_chat else "text_completion",
            "created": self.created_s,
            "model": self.model,
        }
