"""`mooncake kvsize`."""

from __future__ import annotations

import json

import typer

from mooncake_cli.flags import Json
from mooncake_cli.render import print_table
from mooncake_core.errors import UsageError
from mooncake_core.model_spec import ELEMENT_BYTES, KNOWN, load_spec

DEFAULT_TOKENS = (1_024, 8_192, 32_768, 131_072)


def command(
    model: str = typer.Argument(
        ..., help=f"A config.json, a folder with one, or one of {', '.join(KNOWN)}."
    ),
    tokens: list[int] = typer.Option(
        [], min=1, help="Of one sequence; may be repeated. Default: some usual lengths."
    ),
    dtype: str = typer.Option(
        "", help=f"Of the cache: {', '.join(ELEMENT_BYTES)}; default: the model's."
    ),
    as_json: bool = Json,
) -> None:
    """Say how large a model's KV cache is.

    One copy of one sequence, over all layers. Models whose layers keep something else than K and V
    of every token are refused.
    """
    if dtype and dtype not in ELEMENT_BYTES:
        raise UsageError(f"--dtype: {dtype!r} is none of {', '.join(ELEMENT_BYTES)}")
    spec = load_spec(model)
    per_token = spec.bytes_per_token(dtype)
    sizes = {count: per_token * count for count in tokens or DEFAULT_TOKENS}
    if as_json:
        totals = [{"tokens": count, "bytes": size} for count, size in sizes.items()]
        print(
            json.dumps(
                {
                    "model": spec.name,
                    "layers": spec.layers,
                    "kv_heads": spec.kv_heads,
                    "head_dim": spec.head_dim,
                    "dtype": dtype or spec.dtype,
                    "bytes_per_token": per_token,
                    "context_tokens": spec.context_tokens,
                    "source": spec.source,
                    "totals": totals,
                }
            )
        )
        return
    print(f"{spec.name}: 2 (K and V) x {spec.layers} layers x {spec.kv_heads} KV heads x")
    print(f"  {spec.head_dim} dimensions x {ELEMENT_BYTES[dtype or spec.dtype]} bytes", end=" ")
    print(f"({dtype or spec.dtype}) = {per_token:,} bytes per token")
    rows = [
        (f"{count:,}", f"{size:,}", f"{size / 10**9:.3f} GB", f"{size / 2**30:.3f} GiB")
        for count, size in sizes.items()
    ]
    print_table(["tokens", "bytes", "decimal", "binary"], rows)
    print(f"Source: {spec.source}")
