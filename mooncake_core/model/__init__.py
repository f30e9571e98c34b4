"""Torch models over a paged KV pool. Importing this loads torch."""

from mooncake_core.model.base import LayerHooks, Model, SequenceInput
from mooncake_core.model.load import load_model

__all__ = ["LayerHooks", "Model", "SequenceInput", "load_model"]
