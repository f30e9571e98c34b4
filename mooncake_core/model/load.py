"""From the `[model]` table to a model that is ready to compute."""

from __future__ import annotations

import hashlib
import json

import torch

from mooncake_core.config.tables import ModelConfig
from mooncake_core.model.base import Model
from mooncake_core.model.config import FAMILIES, Json, architecture, read_config
from mooncake_core.model.decoder import load_decoder
from mooncake_core.model.origin import Origin, choose_device, choose_dtype
from mooncake_core.model_spec.checkpoint import (
    DUMMY,
    dummy_config,
    model_name,
    prepare_checkpoint,
    weights_digest,
)


def load_model(config: ModelConfig, *, page_tokens: int = 16) -> Model:
    """Return the model that `config` names, on its device. Blocks while it reads or converts files.

    Set the number of torch threads before: it is a part of the model's kernel class.

    Raises:
        ConfigError: there is no such device here.
        ModelError: the checkpoint cannot be used; the message says why.
    """
    device = choose_device(config.device)
    folder = prepare_checkpoint(config.path)
    is_dummy = config.path.startswith(DUMMY)
    values = read_config(dummy_config(config.path) if is_dummy else folder / "config.json")
    origin = Origin(
        name=model_name(config),
        config=values,
        folder=None if is_dummy else folder,
        weights_digest=_dummy_digest(values, device) if is_dummy else weights_digest(folder),
        device=device,
        dtype=choose_dtype(config.dtype, device),
        page_tokens=page_tokens,
    )
    is_own = config.backend == "native" or (
        config.backend == "auto" and architecture(values) in FAMILIES
    )
    if is_own:
        return load_decoder(origin)
    # Here: transformers is heavy and optional, and the module imports it.
    from mooncake_core.model.transformers_backend import load_transformers  # noqa: PLC0415

    return load_transformers(origin)


def _dummy_digest(config: Json, device: torch.device) -> str:
    """Return a digest of the shape: random weights follow from it and from the kind of device."""
    text = f"dummy {device.type} {json.dumps(config, sort_keys=True)}"
    return hashlib.sha256(text.encode()).hexdigest()
