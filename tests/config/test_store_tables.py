"""What a master can be told is what the native side knows."""

from pathlib import Path

import pytest

from mooncake_core.config import MasterConfig, describe, load_config
from mooncake_core.errors import ConfigError
from mooncake_core.native import _native


def test_the_names_of_policies_are_those_that_there_are() -> None:
    choices = {key.name: key.choices for key in describe(MasterConfig) if key.choices}
    assert choices == {
        "eviction": tuple(_native.eviction_names()),
        "admission": tuple(_native.admission_names()),
        "placement": tuple(_native.Placement.strategies()),
    }


def test_the_defaults_are_the_native_ones() -> None:
    signature = _native.MasterOptions.__init__.__doc__ or ""
    config = MasterConfig()
    own = ("listen", "admin", "client_ttl_s", "lease_s", "stripe")
    names = [key.name for key in describe(MasterConfig) if key.name not in own]
    for name in [*names, "stripe_bytes"]:
        value = getattr(config, name)
        assert f"{name}: " in signature and f"= {value!r}" in signature


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('stripe = "64"', "stripe: '64' is 64 bytes; at least 262144 are needed"),
        ('stripe = "large"', "'large' is not a size"),
        ('eviction = "mru"', "eviction: "),
        ('placement = "best"', "placement: "),
        ("hot_gets_per_s = nan", "hot_gets_per_s: "),
        ("hot_replicas = 0", "hot_replicas: "),
        ("heat_half_life_s = 0", "heat_half_life_s: "),
    ],
)
def test_what_cannot_be_is_refused(line: str, problem: str, tmp_path: Path) -> None:
    (file := tmp_path / "master.toml").write_text(line)
    with pytest.raises(ConfigError, match=problem):
        load_config(MasterConfig, file)
