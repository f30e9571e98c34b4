"""TOML to frozen typed structs, once; below it only typed values travel."""

from mooncake_core.config.load import Origins, load_config, render_config
from mooncake_core.config.tables import (
    ConductorConfig,
    DecodeConfig,
    MasterConfig,
    ModelConfig,
    PrefillConfig,
    StoreClientConfig,
    StoreConfig,
    TransferConfig,
    UpConfig,
    WorkerConfig,
)

__all__ = [
    "ConductorConfig",
    "DecodeConfig",
    "MasterConfig",
    "ModelConfig",
    "Origins",
    "PrefillConfig",
    "StoreClientConfig",
    "StoreConfig",
    "TransferConfig",
    "UpConfig",
    "WorkerConfig",
    "load_config",
    "render_config",
]
