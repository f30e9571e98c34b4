"""kill -9 of anything: every request ends in bounded time, nothing leaks, service comes back."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import openai
import pytest

from tests.cluster.chat import Reply, ask, text_of
from tests.cluster.harness import MODEL, Cluster, Member, eventually, http_json, run_cluster

BOUND_S = 60


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster whose processes are killed by one test after another."""
    with run_cluster(tmp_path_factory.mktemp("up"), "--store-capacity", "256 MiB") as cluster:
        yield cluster


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as executor:
        yield executor


def load(member: Member) -> dict[str, int]:
    return dict(http_json(f"{member.url}/status")["load"])


def busy_prefill(cluster: Cluster) -> Member | None:
    """Return the prefill instance that is computing now."""
    return next((m for m in cluster.members("prefill") if load(m)["running"]), None)


def all_pages_are_back(cluster: Cluster) -> bool:
    (decode,) = cluster.members("decode")
    now = load(decode)
    return now["reserved_pages"] == now["quarantined_pages"] == now["running"] == 0


def nothing_is_quarantined(cluster: Cluster) -> bool:
    return int(cluster.status()["store"]["quarantined_bytes"]) == 0


def settles(cluster: Cluster) -> None:
    """Wait until the cluster is whole and holds nothing for anybody."""
    cluster.healthy(BOUND_S)
    eventually(lambda: all_pages_are_back(cluster), BOUND_S, "decode's pages are back")
    eventually(lambda: nothing_is_quarantined(cluster), BOUND_S, "no store bytes are held back")
    assert "Paris" in ask(cluster.client, "What is the capital of France?").text


def outcome(future: Future[Reply]) -> Reply | openai.APIError:
    """Return the answer, or the error that the client was told, within the bound."""
    try:
        return future.result(timeout=BOUND_S)
    except openai.APIError as error:
        return error


def test_a_prefill_killed_in_the_middle_is_replaced(
    victim: Cluster, pool: ThreadPoolExecutor
) -> None:
    future = pool.submit(ask, victim.client, text_of(1500, seed=1))
    member = eventually(lambda: busy_prefill(victim), 20, "a prefill computes")
    os.kill(member.pid, signal.SIGKILL)
    reply = outcome(future)
    assert isinstance(reply, Reply), reply
    assert reply.completion_tokens > 0
    settles(victim)
    assert ask(victim.client, text_of(1500, seed=1), salt="fresh").text == reply.text


def test_a_decode_killed_in_the_middle_ends_its_requests(
    victim: Cluster, pool: ThreadPoolExecutor
) -> None:
    futures = [
        pool.submit(ask, victim.client, f"Count from {n}.", max_tokens=400) for n in range(3)
    ]
    (decode,) = victim.members("decode")
    eventually(lambda: load(decode)["running"], 20, "decode runs")
    os.kill(decode.pid, signal.SIGKILL)
    for future in futures:
        assert isinstance(outcome(future), Reply | openai.APIError)
    settles(victim)


def test_a_store_node_killed_loses_only_what_it_held(victim: Cluster) -> None:
    text = text_of(900, seed=2)
    first = ask(victim.client, text)
    os.kill(victim.members("store")[0].pid, signal.SIGKILL)
    again = ask(victim.client, text, avoid=first.prefill)
    assert again.text == first.text
    settles(victim)
    eventually(
        lambda: len([n for n in victim.status()["store"]["nodes"] if n["state"] == "online"]) == 2,
        BOUND_S,
        "both store nodes lend again",
    )
    text = text_of(900, seed=3)
    first = ask(victim.client, text)
    eventually(lambda: ask(victim.client, text, avoid=first.prefill).cached_tokens > 0, 20, "a hit")


def test_a_client_that_vanishes_leaves_nothing(victim: Cluster) -> None:
    body = (
        b'{"model": "%s", "stream": true, "max_tokens": 900, '
        b'"messages": [{"role": "user", "content": "Count for ever."}]}' % MODEL.encode()
    )
    host, port = victim.endpoint.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n%s" % (len(body), body)
        )
        assert connection.recv(4096).startswith(b"HTTP/1.1 200")
        (decode,) = victim.members("decode")
        eventually(lambda: load(decode)["running"], 20, "decode runs")
    settles(victim)


def test_a_restarted_master_starts_cold_and_serving_goes_on(victim: Cluster) -> None:
    text = text_of(900, seed=4)
    first = ask(victim.client, text)
    (master,) = victim.members("master")
    epoch = victim.status()["store"]["epoch"]
    os.kill(master.pid, signal.SIGKILL)
    while_away = ask(victim.client, text_of(300, seed=9))
    assert while_away.completion_tokens > 0
    eventually(
        lambda: (
            (store := victim.status()["store"]) is not None
            and store["epoch"] != epoch
            and len(store["nodes"]) == 2
        ),
        BOUND_S,
        "the store is back under a new epoch",
    )
    settles(victim)
    again = ask(victim.client, text, avoid=first.prefill)
    assert again.text == first.text
    other = text_of(900, seed=10)
    first = ask(victim.client, other)
    eventually(
        lambda: ask(victim.client, other, avoid=first.prefill).cached_tokens > 0,
        20,
        "the store hits again",
    )


def test_a_stopped_prefill_holds_its_pages_only_until_it_is_dead(
    victim: Cluster, pool: ThreadPoolExecutor
) -> None:
    """A process that sleeps may still write: what it was given is not given to others."""
    future = pool.submit(ask, victim.client, text_of(1500, seed=11))
    member = eventually(lambda: busy_prefill(victim), 20, "a prefill computes")
    os.kill(member.pid, signal.SIGSTOP)
    try:
        assert isinstance(outcome(future), Reply | openai.APIError)
    finally:
        os.kill(member.pid, signal.SIGKILL)
    settles(victim)


def test_many_kills_under_load_lose_no_request(victim: Cluster, pool: ThreadPoolExecutor) -> None:
    futures = [
        pool.submit(ask, victim.client, text_of(300 + 50 * n, seed=20 + n)) for n in range(6)
    ]
    os.kill(victim.members("store")[0].pid, signal.SIGKILL)
    computing = eventually(lambda: busy_prefill(victim), 20, "a prefill computes")
    os.kill(computing.pid, signal.SIGKILL)
    for future in futures:
        assert isinstance(outcome(future), Reply | openai.APIError)
    settles(victim)
