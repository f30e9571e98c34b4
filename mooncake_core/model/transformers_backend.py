"""Any other full-attention decoder, computed by transformers over the same paged pool. Optional.

transformers calls a registered function for every attention layer. Ours writes the keys and values
into the pool and attends to them there, so that pages, batches and hooks are as in the own runtime.
The sequences of a batch are packed into one row; only the attention needs to know where they end.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor

from mooncake_core.cache.kv_pool import KvPool, KvShape
from mooncake_core.errors import ModelError
from mooncake_core.model.attention import PagedBatch
from mooncake_core.model.base import LayerHooks, SequenceInput
from mooncake_core.model.config import architecture, refuse_windows
from mooncake_core.model.origin import Origin

try:
    import transformers
except ImportError as error:
    raise ModelError(
        "this architecture runs through transformers: pip install 'mooncake-serving[transformers]' "
        f"({error})"
    ) from error

_AutoModel: Any = transformers.AutoModelForCausalLM
_ATTENTION = "mooncake_paged"
_UNSUPPORTED = ("sliding_window", "softcap", "s_aux")
"""Arguments that an attention layer passes when it wants more than plain causal attention."""
_batch: ContextVar[PagedBatch] = ContextVar("batch")


def load_transformers(origin: Origin) -> TransformersModel:
    """Return the model of `origin`, after one forward pass that shows that it fits the pool.

    Raises:
        ModelError: transformers does not know the architecture, or it has other attention.
    """
    refuse_windows(origin.config, architecture(origin.config))
    transformers.AttentionInterface.register(_ATTENTION, _attend)
    try:
        module = _random(origin) if origin.folder is None else _pretrained(origin)
    except (OSError, ValueError, TypeError, ImportError, RuntimeError) as error:
        raise ModelError(f"{origin.name}: transformers cannot load it: {error}") from error
    model = TransformersModel(module.eval().to(origin.device), origin)
    model.check()
    return model


def _pretrained(origin: Origin) -> Any:
    return _AutoModel.from_pretrained(
        origin.folder, dtype=origin.dtype, attn_implementation=_ATTENTION, local_files_only=True
    )


def _random(origin: Origin) -> Any:
    config = transformers.AutoConfig.for_model(**origin.config)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return _AutoModel.from_config(config, dtype=origin.dtype, attn_implementation=_ATTENTION)


def _attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Compute one attention layer; tensors are [1, heads, tokens, head_dim]."""
    for name in _UNSUPPORTED:
        if options.get(name) is not None:
            raise ModelError(f"{type(module).__name__}: {name} is not supported")
    assert attention_mask is None, attention_mask.shape
    queries, keys, values = (x.squeeze(0).transpose(0, 1) for x in (query, key, value))
    scale = options.get("scaling") or queries.shape[-1] ** -0.5
    out = _batch.get().attend(module.layer_idx, queries, keys, values, scale=scale)
    return out.unsqueeze(0), None


class TransformersModel:
    """A Model (see base.py) around a transformers module whose attention is ours."""

    def __init__(self, module: Any, origin: Origin) -> None:
        config = module.config
        self._module = module
        self.name = origin.name
        self.weights_digest = origin.weights_digest
        self.kernel_class = origin.kernel_class(f"transformers{transformers.__version__}")
        self.context_tokens = int(config.max_position_embeddings)
        self.vocab = int(config.vocab_size)
        self.device = origin.device
        heads = int(config.num_attention_heads)
        self.kv_shape = KvShape(
            layers=int(config.num_hidden_layers),
            kv_heads=int(getattr(config, "num_key_value_heads", None) or heads),
            head_dim=int(getattr(config, "head_dim", None) or config.hidden_size // heads),
            dtype=origin.dtype,
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
        token = _batch.set(batch)
        try:
            out = self._module(
                input_ids=tokens.to(self.device).unsqueeze(0),
                position_ids=batch.positions.unsqueeze(0),
                use_cache=False,
                logits_to_keep=batch.last_rows,
            )
        finally:
            _batch.reset(token)
        logits: Tensor = out.logits[0].float()
        return logits

    def check(self) -> None:
        """Compute two tokens.

        Raises:
            ModelError: a layer does not use the attention function, or its KV has another shape.
        """
        seen: list[int] = []
        pool = KvPool(self.kv_shape, 1, device=self.device)
        tokens = torch.zeros(2, dtype=torch.int64)
        try:
            logits = self.forward(
                tokens, [SequenceInput(pages=[0], start=0, length=2)], pool, _Recorder(seen)
            )
        except (RuntimeError, TypeError, AttributeError, AssertionError) as error:
            raise ModelError(f"{self.name}: does not run over a paged cache: {error}") from error
        if seen != list(range(self.kv_shape.layers)):
            raise ModelError(f"{self.name}: only layers {seen} have full attention, not all")
        if logits.shape != (1, self.vocab):
            raise ModelError(
                f"{self.name}: logits are {tuple(logits.shape)}, not (1, {self.vocab})"
            )


class _Recorder:
    """Hooks that note which layers came."""

    def __init__(self, seen: list[int]) -> None:
        self._seen = seen

    def before_layer(self, layer: int) -> None:
        """Note `layer`."""
        self._seen.append(layer)

    def after_layer(self, layer: int) -> None:
        """Do nothing."""
