"""From a request's body to token ids and block names.

Pure; slow for long prompts: call it in a thread.
"""

from __future__ import annotations

from dataclasses import dataclass

from mooncake_core.blocks import block_names
from mooncake_core.conductor.openai_api import ApiError, ChatBody, CompletionBody
from mooncake_core.messages import ModelInfo, kv_identity
from mooncake_core.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """A prompt as instances know it."""

    tokens: list[int]
    names: list[bytes]
    """Of its whole blocks."""


def read_prompt(
    body: ChatBody | CompletionBody, tokenizer: Tokenizer, model: ModelInfo, salt: str
) -> Prompt:
    """Tokenise and name the blocks.

    Raises:
        ApiError: there is no prompt in it, or it does not fit the model.
    """
    tokens = _tokens(body, tokenizer, model)
    if not tokens:
        raise ApiError(400, "the prompt is empty", param="prompt")
    if len(tokens) >= model.context_tokens:
        raise ApiError(
            400,
            f"the prompt has {len(tokens)} tokens; the model's context is {model.context_tokens} "
            "and must leave room for an answer",
            param="messages" if isinstance(body, ChatBody) else "prompt",
            code="context_length_exceeded",
        )
    namespace = kv_identity(model).namespace(salt)
    return Prompt(tokens=tokens, names=block_names(namespace, tokens, model.block_tokens))


def answer_tokens(asked: int | None, default: int, prompt: Prompt, model: ModelInfo) -> int:
    """Return how long the answer may be.

    Raises:
        ApiError: the user asked for more than the context leaves.
    """
    left = model.context_tokens - len(prompt.tokens)
    if asked is None:
        return min(default, left)
    if asked <= left:
        return asked
    raise ApiError(
        400,
        f"the prompt has {len(prompt.tokens)} tokens and max_tokens asks for {asked}, together "
        f"{len(prompt.tokens) + asked}; the model's context is {model.context_tokens}",
        param="max_tokens",
        code="context_length_exceeded",
    )


def _tokens(body: ChatBody | CompletionBody, tokenizer: Tokenizer, model: ModelInfo) -> list[int]:
    if isinstance(body, ChatBody):
        return _chat_tokens(body, tokenizer)
    if isinstance(body.prompt, str):
        return _text_tokens(body.prompt, tokenizer)
    tokens: list[int] = []
    for item in body.prompt:
        if isinstance(item, str):
            return _text_tokens(item, tokenizer)
        if not 0 <= item < model.vocab:
            raise ApiError(
                400,
                f"prompt[{len(tokens)}] = {item} is no token; they are 0 to {model.vocab - 1}",
                param="prompt",
            )
        tokens.append(item)
    return tokens


def _text_tokens(text: str, tokenizer: Tokenizer) -> list[int]:
    # Some models put a token before every text; that alone is no prompt either.
    return tokenizer.encode(text) if text else []


def _chat_tokens(body: ChatBody, tokenizer: Tokenizer) -> list[int]:
    if not tokenizer.has_chat_template:
        raise ApiError(
            400,
            "this model has no chat template; use /v1/completions",
            param="messages",
            code="no_chat_template",
        )
    roles = {"developer": "system"}
    return tokenizer.chat(
        [{"role": roles.get(m.role, m.role), "content": m.text} for m in body.messages]
    )
