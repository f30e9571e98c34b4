"""The tokenizer of a GGUF file as tokenizer.json and tokenizer_config.json. Pure."""

from __future__ import annotations

import json
from typing import Any

from mooncake_core.errors import ModelError
from mooncake_core.model_spec.gguf import GgufFile

_CONTROL = 3
_USER_DEFINED = 4


def _byte_level(use_regex: bool) -> dict[str, Any]:
    return {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": use_regex,
    }


def _split(digits: str) -> dict[str, Any]:
    """Return the pre-tokenizer of Llama 3 and Qwen2, which differ in how they cut numbers."""
    pattern = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|" + digits + r"|"
        r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    split = {
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": "Isolated",
        "invert": False,
    }
    return {"type": "Sequence", "pretokenizers": [split, _byte_level(False)]}


_PRE_TOKENIZERS = {
    "gpt-2": _byte_level(True),
    "smollm": {
        "type": "Sequence",
        "pretokenizers": [{"type": "Digits", "individual_digits": True}, _byte_level(True)],
    },
    "qwen2": _split(r"\p{N}"),
    "llama-bpe": _split(r"\p{N}{1,3}"),
}


def tokenizer_files(file: GgufFile, context_tokens: int) -> dict[str, str]:
    """Return file name -> text.

    Raises:
        ModelError: the vocabulary is not byte-level BPE, or its pre-tokenizer is not known.
    """
    kind = file.get("tokenizer.ggml.model", str)
    if kind != "gpt2":
        raise ModelError(f"{file.path}: tokenizer model {kind!r} is not known; known: gpt2")
    pre = file.get("tokenizer.ggml.pre", str, "gpt-2")
    if pre not in _PRE_TOKENIZERS:
        raise ModelError(
            f"{file.path}: pre-tokenizer {pre!r} is not known; known: {', '.join(_PRE_TOKENIZERS)}"
        )
    tokens = _strings(file, "tokenizer.ggml.tokens")
    special = {
        role: tokens[index]
        for role in ("bos", "eos", "unk", "pad")
        if (index := _special_id(file, role, len(tokens))) is not None
    }
    return {
        "tokenizer.json": json.dumps(_tokenizer(file, tokens, pre, special), ensure_ascii=False),
        "tokenizer_config.json": json.dumps(
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "model_max_length": context_tokens,
                "clean_up_tokenization_spaces": False,
                **{f"{role}_token": token for role, token in special.items()},
                **_chat_template(file),
            },
            indent=2,
            ensure_ascii=False,
        ),
    }


def _strings(file: GgufFile, key: str) -> list[str]:
    values: list[str] = file.get(key, list)
    if not all(isinstance(value, str) for value in values):
        raise ModelError(f"{file.path}: GGUF metadata {key!r} is not a list of strings")
    return values


def _special_id(file: GgufFile, role: str, vocab: int) -> int | None:
    key = f"tokenizer.ggml.{ {'unk': 'unknown', 'pad': 'padding'}.get(role, role) }_token_id"
    index = file.metadata.get(key)
    if index is not None and not (isinstance(index, int) and 0 <= index < vocab):
        raise ModelError(
            f"{file.path}: GGUF metadata {key!r} is {index!r}; the vocabulary has {vocab}"
        )
    return index


def _chat_template(file: GgufFile) -> dict[str, str]:
    template = file.metadata.get("tokenizer.chat_template")
    return {"chat_template": template} if isinstance(template, str) else {}


def _tokenizer(
    file: GgufFile, tokens: list[str], pre: str, special: dict[str, str]
) -> dict[str, Any]:
    kinds: list[int] = file.get("tokenizer.ggml.token_type", list, [1] * len(tokens))
    added = [
        {
            "id": index,
            "content": tokens[index],
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": kind == _CONTROL,
        }
        for index, kind in enumerate(kinds[: len(tokens)])
        if kind in (_CONTROL, _USER_DEFINED)
    ]
    add_bos = file.metadata.get("tokenizer.ggml.add_bos_token", pre == "llama-bpe")
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "NFC"} if pre == "qwen2" else None,
        "pre_tokenizer": _PRE_TOKENIZERS[pre],
        "post_processor": _prepend(special["bos"], tokens)
        if add_bos and "bos" in special
        else None,
        "decoder": _byte_level(True),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": pre == "llama-bpe",
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": _strings(file, "tokenizer.ggml.merges"),
        },
    }


def _prepend(bos: str, tokens: list[str]) -> dict[str, Any]:
    mark = {"SpecialToken": {"id": bos, "type_id": 0}}
    first, second = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    return {
        "type": "TemplateProcessing",
        "single": [mark, first],
        "pair": [mark, first, second],
        "special_tokens": {bos: {"id": bos, "ids": [tokens.index(bos)], "tokens": [bos]}},
    }
