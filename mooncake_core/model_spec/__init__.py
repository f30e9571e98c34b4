"""`config.json` -> layers, heads, KV bytes; and checkpoints made ready to load."""

from mooncake_core.model_spec.known import KNOWN
from mooncake_core.model_spec.spec import ELEMENT_BYTES, ModelSpec, load_spec, read_spec

__all__ = ["ELEMENT_BYTES", "KNOWN", "ModelSpec", "load_spec", "read_spec"]
