"""Small clusters for tests of decisions."""

from typing import Any

import msgspec

from mooncake_core.conductor.estimates import PrefillCost, StepTimes
from mooncake_core.conductor.policy import ClusterView, DecodeView, PrefillView
from mooncake_core.messages import InstanceInfo, ModelInfo

MODEL = ModelInfo(
    name="m",
    weights_digest="ab" * 16,
    dtype="float32",
    layout="LKTHD",
    kernel_class="native-cpu",
    block_tokens=256,
    page_tokens=16,
    layers=2,
    kv_bytes_per_token=1024,
    context_tokens=8192,
    vocab=100,
)


def prefill(instance_id: str, **values: Any) -> PrefillView:
    """An idle prefill instance that computes 1000 tokens/s and loads 100,000."""
    defaults = {
        "url": f"http://{instance_id}",
        "peer_id": "aa",
        "queue_s": 0.0,
        "cost": PrefillCost(base_s=0.0, token_s=1e-3, square_s=0.0),
        "load_token_s": 1e-5,
        "capacity_tokens": 1 << 20,
    }
    return PrefillView(**{"instance_id": instance_id, **defaults, **values})


def decode(instance_id: str, **values: Any) -> DecodeView:
    """An idle decode instance."""
    defaults = {
        "url": f"http://{instance_id}",
        "running": 0,
        "max_batch": 16,
        "free_pages": 1000,
        "pages": 1000,
        "page_tokens": 16,
        "steps": StepTimes(),
    }
    return DecodeView(**{"instance_id": instance_id, **defaults, **values})


def view(*instances: PrefillView | DecodeView, **values: Any) -> ClusterView:
    """A cluster; with one decode instance where none is given."""
    decodes = tuple(i for i in instances if isinstance(i, DecodeView)) or (decode("d0"),)
    defaults = {"ttft_slo_s": 100.0, "tbt_slo_s": 1.0, "balancing_threshold": 2.0}
    return ClusterView(
        prefills=tuple(i for i in instances if isinstance(i, PrefillView)),
        decodes=decodes,
        **{**defaults, **values},
    )


def info(instance_id: str, role: str = "prefill", **values: Any) -> InstanceInfo:
    """What an instance registers with."""
    model = msgspec.structs.replace(MODEL, **values.pop("model", {}))
    fields = {
        "instance_id": instance_id,
        "role": role,
        "url": f"http://{instance_id}",
        "host_id": "h",
        "peer_id": "aa",
        "model": model,
        "pages": 1000,
        "max_batch": 4,
        "pid": 1,
        "prefill_tokens_per_s": 1000.0 if role == "prefill" else 0.0,
    }
    return InstanceInfo(**{**fields, **values})
