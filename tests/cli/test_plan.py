"""What `mooncake up` runs, and when a dead process starts again."""

import pytest

from mooncake_cli.plan import (
    LONGEST_DELAY_S,
    MAX_FAILED_STARTS,
    STOP_ORDER,
    Part,
    Starts,
    flags,
    reachable,
    start_order,
)
from mooncake_core.config import KINDS, ModelConfig, UpConfig, describe

KNOWN = {
    "master": {"rpc": "127.0.0.1:1", "admin": "127.0.0.1:2"},
    "conductor": {"http": "0.0.0.0:8000"},
}


def test_who_is_needed_starts_first() -> None:
    groups = start_order(UpConfig(listen="127.0.0.1:0", stores=2, prefills=3, decodes=1))
    assert [[part.name for part in group] for group in groups] == [
        ["master"],
        ["conductor"],
        ["store-0", "store-1", "prefill-0", "prefill-1", "prefill-2", "decode-0"],
    ]


def test_nobody_waits_for_a_conductor_whose_port_is_known() -> None:
    config = UpConfig(listen="127.0.0.1:9000", stores=1, prefills=1)
    groups = start_order(config)
    names = [[part.name for part in group] for group in groups]
    assert names == [["master"], ["conductor", "store-0", "prefill-0", "decode-0"]]
    known = {"master": KNOWN["master"]}
    assert "--conductor=127.0.0.1:9000" in flags(groups[1][2], config, known)


def test_every_role_is_stopped_once() -> None:
    roles = {part.role for group in start_order(UpConfig()) for part in group}
    assert sorted(role for wave in STOP_ORDER for role in wave) == sorted(roles)


@pytest.mark.parametrize("role", ["master", "conductor", "store", "prefill", "decode"])
def test_every_flag_is_one_of_the_role(role: str) -> None:
    known_flags = {key.flag for key in describe(KINDS[role])}
    given = {flag.partition("=")[0] for flag in flags(Part(role, role), UpConfig(), KNOWN)}
    assert given <= known_flags


def test_a_first_start_takes_free_ports_and_the_next_one_the_same() -> None:
    store = Part("store-0", "store")
    assert "--transfer-listen=127.0.0.1:0" in flags(store, UpConfig(), KNOWN)
    again = flags(store, UpConfig(), {**KNOWN, "store-0": {"transfer": "127.0.0.1:5"}})
    assert "--transfer-listen=127.0.0.1:5" in again


def test_what_the_cluster_is_told_reaches_its_processes() -> None:
    config = UpConfig(
        listen="0.0.0.0:9000",
        model=ModelConfig(path="m", dtype="float32"),
        pool_tokens=512,
        replicas=2,
        same_host="network",
    )
    prefill = flags(Part("prefill-0", "prefill"), config, KNOWN)
    assert {
        *("--model-path=m", "--model-dtype=float32", "--pool-tokens=512", "--pool-replicas=2"),
        *("--pool-master=127.0.0.1:1", "--transfer-same-host=network"),
    } <= set(prefill)
    # 0.0.0.0 is where the conductor listens, not where anybody reaches it.
    assert "--conductor=127.0.0.1:8000" in prefill
    assert "--listen=0.0.0.0:9000" in flags(Part("c", "conductor"), config, KNOWN)


def test_any_address_is_reached_by_loopback() -> None:
    assert reachable("0.0.0.0:1") == "127.0.0.1:1"
    assert reachable("[::]:1") == "[::1]:1"
    assert reachable("10.0.0.1:1") == "10.0.0.1:1"


def test_a_process_that_never_serves_is_given_up_after_some_starts() -> None:
    starts = Starts()
    delays = [starts.ended(None) for _ in range(MAX_FAILED_STARTS)]
    assert delays[-1] is None
    waits = [delay for delay in delays[:-1] if delay is not None]
    assert len(waits) == MAX_FAILED_STARTS - 1 and waits == sorted(waits)


def test_a_process_that_serves_is_never_given_up_and_waits_longer_while_it_dies_young() -> None:
    starts = Starts()
    delays = [starts.ended(0.1) for _ in range(50)]
    assert delays[0] is not None and delays[-1] == LONGEST_DELAY_S
    assert starts.ended(3600.0) == delays[0]
