"""Files and flags become structs, or an error that says where, what and what would be right."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mooncake_core.config import (
    KINDS,
    ConductorConfig,
    DecodeConfig,
    MasterConfig,
    PrefillConfig,
    StoreClientConfig,
    StoreConfig,
    Table,
    TransferConfig,
    UpConfig,
    checked,
    kind_named,
    kind_of_file,
    load_config,
    render_config,
)
from mooncake_core.errors import ConfigError

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_file(text: str) -> Path:
        path = tmp_path / "some.toml"
        path.write_text(text)
        return path

    return write_file


def refused(kind: type, path: Path | None = None, flags: dict[str, Any] | None = None) -> str:
    with pytest.raises(ConfigError) as error:
        load_config(kind, path, flags)
    return str(error.value)


def test_an_unknown_key_is_refused_with_the_nearest_name(write: Write) -> None:
    path = write("[transfer]\nio_thread = 3\n")
    message = refused(StoreConfig, path)
    assert message == f"{path}:transfer.io_thread: unknown key; did you mean 'io_threads'?"


def test_an_unknown_key_unlike_any_other_gets_the_list(write: Write) -> None:
    assert "known here: listen, admin, client_ttl_s, lease_s" in refused(
        MasterConfig, write("zz = 1")
    )


@pytest.mark.parametrize("key", ["nothing", "transfer.nothing", "nothing.at.all", "listen.host"])
def test_an_unknown_dotted_key_of_a_flag_is_a_clear_error(key: str) -> None:
    message = refused(PrefillConfig, None, {key: "x"})
    assert message.startswith("--") and key.split(".", maxsplit=1)[0] in message


@pytest.mark.parametrize(
    ("kind", "text", "problem"),
    [
        (PrefillConfig, "pool_tokens = 255", "pool_tokens: Expected `int` >= 256; got 255"),
        (DecodeConfig, "max_batch = 0", "max_batch: Expected `int` >= 1; got 0"),
        (MasterConfig, "lease_s = nan", "lease_s: Expected `float` > 0.0; got nan"),
        (MasterConfig, "lease_s = inf", "lease_s: Expected `float` <= 86400.0; got inf"),
        (MasterConfig, "lease_s = -1", "lease_s: Expected `float` > 0.0"),
        (MasterConfig, "listen = 7400", "listen: 7400 is not host:port"),
        (StoreConfig, "capacity = 1073741824", "capacity: 1073741824 is not a size: a text of a"),
        (StoreConfig, "drain_s = '5'", "drain_s: Expected `float`, got `str` '5'"),
        (
            StoreConfig,
            'transfer.addresses = ["10.0.0.2", "eth0:1"]',
            "transfer.addresses[1]: 'eth0:1' is not an address or an interface name",
        ),
        (MasterConfig, 'listen = "localhost"', "'localhost' is not host:port"),
        (MasterConfig, 'listen = "a:65536"', "'a:65536' is not host:port"),
        (StoreConfig, 'capacity = "-5"', "capacity: '-5' is not a size"),
        (StoreConfig, 'capacity = ""', "capacity: '' is not a size"),
        (StoreConfig, 'capacity = "10 %"', "capacity: '10 %' is not a size"),
        (StoreConfig, 'capacity = "1 kB"', "is 1000 bytes; at least 1048576 are needed"),
        (StoreConfig, 'transfer = "tcp"', "transfer: Expected a table, got `str`"),
        (MasterConfig, "[listen]\nhost = 1", "listen: this is a value, not a table"),
        (
            UpConfig,
            '[model]\ndtype = "float16"',
            "model.dtype: 'float16' is none of auto, bfloat16, float32",
        ),
        (ConductorConfig, 'max_body = "lots"', "max_body: 'lots' is not a size"),
        (ConductorConfig, "[slo]\nttft_s = 0", "slo.ttft_s: Expected `float` > 0.0; got 0"),
    ],
)
def test_a_wrong_value_is_refused_with_file_and_key(
    kind: type, text: str, problem: str, write: Write
) -> None:
    path = write(text)
    message = refused(kind, path)
    assert message.startswith(f"{path}:") and problem in message


def test_a_wrong_flag_is_named_instead_of_the_file(write: Write) -> None:
    path = write('capacity = "2 GiB"')
    assert refused(StoreConfig, path, {"capacity": "-5"}).startswith("--capacity: '-5' is")
    message = refused(StoreConfig, path, {"transfer.io_threads": 0})
    assert message.startswith("--transfer-io-threads: Expected")


def test_flags_override_the_file_which_overrides_the_defaults(write: Write) -> None:
    path = write('capacity = "2 GiB"\nmaster = "10.0.0.1:1"\n')
    config, origins = load_config(
        StoreConfig, path, {"capacity": "3 GiB", "transfer.io_threads": 4, "master": None}
    )
    assert config.capacity_bytes == 3 << 30
    shown = {key: (value, origin) for key, value, origin in render_config(config, origins)}
    assert shown["capacity"] == ("3 GiB", "flag")
    assert shown["master"] == ("10.0.0.1:1", str(path))
    assert shown["transfer.io_threads"] == (4, "flag")
    assert shown["transfer.listen"] == ("127.0.0.1:0", "default")


def test_an_ipv6_address_stands_in_brackets(write: Write) -> None:
    config, _ = load_config(MasterConfig, write('listen = "[::1]:7400"'))
    assert config.listen == "[::1]:7400"
    assert "is not host:port" in refused(MasterConfig, write('listen = "::1:7400"'))


@pytest.mark.parametrize("host", ["[::1]", "[fe80::1%lo]", "[fe80::1%br-0_A.7]", "[2001:db8::7]"])
@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        (MasterConfig, ("listen", "admin")),
        (StoreConfig, ("master", "transfer.listen")),
        (PrefillConfig, ("listen", "conductor", "transfer.listen", "pool.master")),
        (DecodeConfig, ("listen", "conductor", "transfer.listen")),
        (ConductorConfig, ("listen", "pool.master")),
        (UpConfig, ("listen",)),
    ],
)
def test_every_address_may_be_of_ipv6(kind: type, keys: tuple[str, ...], host: str) -> None:
    for key in keys:
        found: object = load_config(kind, None, {key: f"{host}:7400"})[0]
        for name in key.split("."):
            found = getattr(found, name)
        assert found == f"{host}:7400"
        for wrong in (f"{host}", host.strip("[]"), f"{host[:-1]}:7400", f"{host}:65536"):
            with pytest.raises(ConfigError, match="host:port"):
                load_config(kind, None, {key: wrong})


def test_a_file_that_is_none_is_told(write: Write, tmp_path: Path) -> None:
    assert "cannot read it: No such file" in refused(MasterConfig, tmp_path / "none.toml")
    assert "not TOML" in refused(MasterConfig, write("listen = "))
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    assert "not UTF-8" in refused(MasterConfig, binary)


def test_the_kind_of_a_file_is_in_its_name() -> None:
    assert kind_of_file(Path("a/store.toml")) == "store"
    assert kind_of_file(Path("prefill-2.toml")) == "prefill"
    with pytest.raises(ConfigError, match="--kind"):
        kind_of_file(Path("stores.toml"))
    with pytest.raises(ConfigError, match="did you mean 'store'"):
        kind_named("stroe")


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_kind_has_defaults(kind: type) -> None:
    assert load_config(kind)[0] == kind()


WILDCARDS = ["0.0.0.0:7500", "[::]:0", "[0:0::0]:0", "[::ffff:0.0.0.0]:0", "0:0", "0x0:0", "*:0"]


@pytest.mark.parametrize("address", WILDCARDS)
@pytest.mark.parametrize("key", ["listen", "transfer.listen"])
def test_an_address_that_peers_are_told_is_of_one_interface(key: str, address: str) -> None:
    with pytest.raises(ConfigError, match=r"the address of the interface") as raised:
        load_config(PrefillConfig, None, {key: address})
    assert f"--{key.replace('.', '-')}: {address!r}" in str(raised.value)


def test_the_public_endpoint_may_listen_on_every_interface() -> None:
    config, _ = load_config(ConductorConfig, None, {"listen": "0.0.0.0:8000"})
    assert config.listen == "0.0.0.0:8000"


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (StoreClientConfig(master="nonsense"), "StoreClientConfig.master: 'nonsense' is not host:"),
        (StoreClientConfig(timeout_s=-1), "StoreClientConfig.timeout_s: Expected `float` > 0.0; "),
        (StoreClientConfig(timeout_s=math.inf), "<= 86400.0; got inf"),
        (
            StoreClientConfig(replicas=99),
            "StoreClientConfig.replicas: Expected `int` <= 16; got 99",
        ),
        (TransferConfig(listen="127.0.0.1"), "TransferConfig.listen: '127.0.0.1' is not host:port"),
        (TransferConfig(same_host="maybe"), "same_host: 'maybe' is none of shm, network"),  # type: ignore[arg-type]
        (TransferConfig(listen=7400), "TransferConfig.listen: 7400 is not host:port"),  # type: ignore[arg-type]
        (
            TransferConfig(addresses=("eth0:1",)),
            "TransferConfig.addresses[0]: 'eth0:1' is not an addr",
        ),
        (PrefillConfig(pool=StoreClientConfig(replicas=0)), "PrefillConfig.pool.replicas: Expec"),
    ],
)
def test_a_struct_made_in_python_is_refused_like_one_from_a_file(
    config: Table, problem: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        checked(config, type(config))
    assert problem in str(raised.value)


def test_another_thing_than_the_struct_is_refused_by_its_type() -> None:
    with pytest.raises(TypeError, match="a str; a StoreClientConfig is needed"):
        checked("127.0.0.1:7400", StoreClientConfig)


def test_a_struct_that_is_well_stays_what_it_is() -> None:
    config = TransferConfig(addresses=("127.0.0.1", "lo"), timeout_s=3)
    assert checked(config, TransferConfig) == config


def test_a_size_is_a_text_in_python_too() -> None:
    with pytest.raises(ValueError, match="capacity: 5 is not a size"):
        StoreConfig(capacity=5)  # type: ignore[arg-type]
