"""A model's tokenizer, as its checkpoint folder describes it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mooncake_core.errors import ModelError, RequestError
from mooncake_core.tokenizer.base import Codec
from mooncake_core.tokenizer.byte import BYTE_VOCAB, EOS, ByteCodec
from mooncake_core.tokenizer.chat import ChatTemplate, Message
from mooncake_core.tokenizer.hf import HfCodec
from mooncake_core.tokenizer.stream import TokenStream, open_stream

_SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token")
_PLAIN_CHAT = (
    "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
)
"""For random weights, which were trained on no template."""


class Tokenizer:
    """Text to token ids and back. Thread-safe; streams are not.

    Args:
        codec: the vocabulary.
        template: for chats, if the model has one.
        eos_token_ids: ids that end an answer.
    """

    def __init__(
        self, codec: Codec, template: ChatTemplate | None, eos_token_ids: tuple[int, ...]
    ) -> None:
        self._codec = codec
        self._template = template
        self.eos_token_ids = eos_token_ids
        self.vocab = codec.vocab

    @property
    def has_chat_template(self) -> bool:
        """Whether `chat` can be used."""
        return self._template is not None

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """Return the ids of `text`; `special` adds what the model wants around a text.

        Raises:
            RequestError: the text is not Unicode.
        """
        return self._codec.encode(text, special=special)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of `ids`, without special tokens; broken characters become U+FFFD."""
        return self._codec.decode(ids)

    def stream(self) -> TokenStream:
        """Return a decoder for the ids of one answer, one at a time."""
        return open_stream(self._codec)

    def chat(self, messages: Sequence[Message], *, add_generation_prompt: bool = True) -> list[int]:
        """Return the ids of a conversation, as the model's template writes it.

        Raises:
            RequestError: the model has no template, or its template refuses the messages.
        """
        if self._template is None:
            raise RequestError("this model has no chat template; use /v1/completions")
        text = self._template.render(messages, add_generation_prompt=add_generation_prompt)
        return self._codec.encode(text, special=False)


def load_tokenizer(folder: Path) -> Tokenizer:
    """Return the tokenizer of the checkpoint in `folder`.

    Without a tokenizer.json and without weights (dummy:CONFIG.json) it is one of bytes.

    Raises:
        ModelError: there is none, or it cannot be read.
    """
    if not (folder / "tokenizer.json").is_file():
        return _byte_tokenizer(folder)
    codec = HfCodec(folder / "tokenizer.json")
    config = _read(folder / "tokenizer_config.json")
    tokens = {name: text for name in _SPECIAL if (text := _token_text(config.get(name)))}
    source = _template_source(folder, config)
    template = ChatTemplate(source, tokens) if source is not None else None
    return Tokenizer(codec, template, _eos_ids(folder, codec, tokens))


def _byte_tokenizer(folder: Path) -> Tokenizer:
    if any(folder.glob("*.safetensors")):
        raise ModelError(f"{folder}: tokenizer.json is missing")
    vocab = _read(folder / "config.json").get("vocab_size")
    if not isinstance(vocab, int) or vocab < BYTE_VOCAB:
        raise ModelError(
            f"{folder / 'config.json'}: vocab_size is {vocab!r}; without a tokenizer.json "
            f"a token is a byte, which needs at least {BYTE_VOCAB}"
        )
    return Tokenizer(ByteCodec(vocab), ChatTemplate(_PLAIN_CHAT, {}), (EOS,))


def _read(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{file}: cannot read it as JSON: {error}") from error
    if not isinstance(values, dict):
        raise ModelError(f"{file}: a JSON object is needed, this is a {type(values).__name__}")
    return values


def _token_text(entry: Any) -> str | None:
    """Return the text of a special token, which is written alone or within an object."""
    text = entry.get("content") if isinstance(entry, dict) else entry
    return text if isinstance(text, str) else None


def _template_source(folder: Path, config: dict[str, Any]) -> str | None:
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    source = config.get("chat_template")
    if isinstance(source, list):
        named = {entry.get("name"): entry.get("template") for entry in source}
        source = named.get("default")
    return source if isinstance(source, str) else None


def _eos_ids(folder: Path, codec: Codec, tokens: dict[str, str]) -> tuple[int, ...]:
    """Return every id that one of the folder's files calls an end, the most specific file first."""
    ids: list[Any] = []
    for name in ("generation_config.json", "config.json"):
        value = _read(folder / name).get("eos_token_id")
        ids += value if isinstance(value, list) else [value]
    if "eos_token" in tokens:
        ids.append(codec.token_id(tokens["eos_token"]))
    return tuple(dict.fromkeys(token for token in ids if isinstance(token, int)))
