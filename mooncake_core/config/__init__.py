"""TOML to frozen typed structs, once; below it only typed values travel."""

from mooncake_core.config.describe import Key, describe, table_doc
from mooncake_core.config.kinds import KINDS, kind_named, kind_of_file
from mooncake_core.config.load import Origins, checked, load_config, place, render_config
from mooncake_core.config.tables import (
    ConductorConfig,
    DecodeConfig,
    MasterConfig,
    ModelConfig,
    PrefillConfig,
    StoreClientConfig,
    StoreConfig,
    Table,
    TransferConfig,
    UpConfig,
    WorkerConfig,
)

__all__ = [
    "KINDS",
    "ConductorConfig",
    "DecodeConfig",
    "Key",
    "MasterConfig",
    "ModelConfig",
    "Origins",
    "PrefillConfig",
    "StoreClientConfig",
    "StoreConfig",
    "Table",
    "TransferConfig",
    "UpConfig",
    "WorkerConfig",
    "checked",
    "describe",
    "kind_named",
    "kind_of_file",
    "load_config",
    "place",
    "render_config",
    "table_doc",
]
