"""The own runtime: one forward pass for the Llama, Mistral, Qwen2 and Qwen3 families.

Operations and their order follow the reference implementation of these families, so that logits
agree with it to the last bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import embedding, linear, silu

from mooncake_core.cache.kv_pool import KvPool, KvShape
from mooncake_core.model.attention import PagedBatch
from mooncake_core.model.base import LayerHooks, SequenceInput
from mooncake_core.model.config import DecoderConfig, Llama3Rope, parse_config
from mooncake_core.model.origin import Origin
from mooncake_core.model.weights import Shapes, load_weights, random_weights


def load_decoder(origin: Origin) -> Decoder:
    """Return the model of `origin`.

    Raises:
        ModelError: its configuration or weights are not of a family that is computed here.
    """
    config = parse_config(origin.config)
    shapes = weight_shapes(config)
    if origin.folder is None:
        std = config.initializer_range
        weights = random_weights(shapes, std, origin.dtype, origin.device)
    else:
        weights = load_weights(origin.folder, shapes, origin.dtype, origin.device)
    return Decoder(config, weights, origin)


@dataclass(frozen=True)
class _Linear:
    weight: Tensor
    bias: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


@dataclass(frozen=True)
class _Norm:
    weight: Tensor
    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)


@dataclass(frozen=True, kw_only=True)
class _Layer:
    input_norm: _Norm
    query: _Linear
    key: _Linear
    value: _Linear
    query_norm: _Norm | None
    key_norm: _Norm | None
    output: _Linear
    mlp_norm: _Norm
    gate: _Linear
    up: _Linear
    down: _Linear


class Decoder:
    """A Model (see base.py) over weights named as in Hugging Face checkpoints.

    Args:
        config: the shape.
        weights: the tensors of `weight_shapes(config)`, of one dtype and device.
        origin: of the weights.
    """

    def __init__(self, config: DecoderConfig, weights: dict[str, Tensor], origin: Origin) -> None:
        self.name = origin.name
        self.weights_digest = origin.weights_digest
        self.kernel_class = origin.kernel_class("native")
        self.context_tokens = config.context_tokens
        self.vocab = config.vocab
        self._config = config
        self._embedding = weights["model.embed_tokens.weight"]
        self._layers = [_layer(config, weights, index) for index in range(config.layers)]
        self._norm = _Norm(weights["model.norm.weight"], config.norm_eps)
        self._head = weights["model.embed_tokens.weight" if config.tied else "lm_head.weight"]
        self.device = self._embedding.device
        self._frequencies = _frequencies(config).to(self.device)
        self.kv_shape = KvShape(
            layers=config.layers,
            kv_heads=config.kv_heads,
            head_dim=config.head_dim,
            dtype=self._embedding.dtype,
            page_tokens=origin.page_tokens,
        )

    @torch.inference_mode()
    def forward(
        self,
        tokens: Tensor,
        sequences: Sequence[SequenceInput],
        pool: KvPool,
        hooks: LayerHooks | None = None,
    ) -> Tensor:
        """Compute new tokens, write their KV into the pool, return logits. See Model.forward."""
        assert pool.shape == self.kv_shape, (pool.shape, self.kv_shape)
        batch = PagedBatch(sequences, pool, self.device, hooks)
        assert len(tokens) == len(batch.positions), (len(tokens), len(batch.positions))
        x = embedding(tokens.to(self.device), self._embedding)
        rotary = self._rotary(batch.positions)
        for index, layer in enumerate(self._layers):
            x = x + self._attention(index, layer, layer.input_norm(x), batch, rotary)
            h = layer.mlp_norm(x)
            x = x + layer.down(silu(layer.gate(h)) * layer.up(h))
        return linear(self._norm(x[batch.last_rows]), self._head).float()

    def _attention(
        self,
        index: int,
        layer: _Layer,
        x: Tensor,
        batch: PagedBatch,
        rotary: tuple[Tensor, Tensor],
    ) -> Tensor:
        head_dim = self._config.head_dim
        queries = layer.query(x).view(len(x), -1, head_dim)
        keys = layer.key(x).view(len(x), -1, head_dim)
        values = layer.value(x).view(len(x), -1, head_dim)
        if layer.query_norm is not None and layer.key_norm is not None:
            queries, keys = layer.query_norm(queries), layer.key_norm(keys)
        queries, keys = _rotate(queries, rotary), _rotate(keys, rotary)
        out = batch.attend(index, queries, keys, values, scale=head_dim**-0.5)
        return layer.output(out.flatten(1))

    def _rotary(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return cos and sin, [tokens, 1, head_dim] each, in the model's dtype."""
        angles = positions.float()[:, None] * self._frequencies
        angles = torch.cat((angles, angles), -1).unsqueeze(1)
        dtype = self._embedding.dtype
        return angles.cos().to(dtype), angles.sin().to(dtype)


def _rotate(x: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
    cos, sin = rotary
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


def _frequencies(config: DecoderConfig) -> Tensor:
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.int64).float() / config.head_dim
    frequencies = 1.0 / config.rope_theta**exponents
    return _stretch(frequencies, config.rope_scaling) if config.rope_scaling else frequencies


def _stretch(frequencies: Tensor, rope: Llama3Rope) -> Tensor:
    """Divide low frequencies by the factor, keep high ones, blend between, as Llama 3.1 does."""
    turns = rope.original_context_tokens / (2 * math.pi / frequencies)
    blend = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    blend = blend.clamp(0, 1)
    return (1 - blend) * frequencies / rope.factor + blend * frequencies


def weight_shapes(config: DecoderConfig) -> Shapes:
    """Return name -> shape of every tensor that a model of `config` has."""
    width, kv_width = config.heads * config.head_dim, config.kv_heads * config.head_dim
    linears = {
        "self_attn.q_proj": (width, config.hidden, config.qkv_bias),
        "self_attn.k_proj": (kv_width, config.hidden, config.qkv_bias),
        "self_attn.v_proj": (kv_width, config.hidden, config.qkv_bias),
        "self_attn.o_proj": (config.hidden, width, config.output_bias),
        "mlp.gate_proj": (config.intermediate, config.hidden, config.mlp_bias),
        "mlp.up_proj": (config.intermediate, config.hidden, config.mlp_bias),
        "mlp.down_proj": (config.hidden, config.intermediate, config.mlp_bias),
    }
    norms = {"input_layernorm": config.hidden, "post_attention_layernorm": config.hidden}
    if config.qk_norm:
        norms |= {"self_attn.q_norm": config.head_dim, "self_attn.k_norm": config.head_dim}
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config.vocab, config.hidden)
    }
    for index in range(config.layers):
        prefix = f"model.layers.{index}"
        shapes |= {f"{prefix}.{name}.weight": (size,) for name, size in norms.items()}
        for name, (rows, columns, has_bias) in linears.items():
            shapes[f"{prefix}.{name}.weight"] = (rows, columns)
            if has_bias:
                shapes[f"{prefix}.{name}.bias"] = (rows,)
    shapes["model.norm.weight"] = (config.hidden,)
    if not config.tied:
        shapes["lm_head.weight"] = (config.vocab, config.hidden)
    return shapes


def _layer(config: DecoderConfig, weights: dict[str, Tensor], index: int) -> _Layer:
    prefix = f"model.layers.{index}"

    def projection(name: str) -> _Linear:
        name = f"{prefix}.{name}"
        return _Linear(weights[f"{name}.weight"], weights.get(f"{name}.bias"))

    def norm(name: str) -> _Norm:
        return _Norm(weights[f"{prefix}.{name}.weight"], config.norm_eps)

    return _Layer(
        input_norm=norm("input_layernorm"),
        query=projection("self_attn.q_proj"),
        key=projection("self_attn.k_proj"),
        value=projection("self_attn.v_proj"),
        query_norm=norm("self_attn.q_norm") if config.qk_norm else None,
        key_norm=norm("self_attn.k_norm") if config.qk_norm else None,
        output=projection("self_attn.o_proj"),
        mlp_norm=norm("post_attention_layernorm"),
        gate=projection("mlp.gate_proj"),
        up=projection("mlp.up_proj"),
        down=projection("mlp.down_proj"),
    )
