"""A client whose master does not answer: it keeps beating, and it can be closed."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from mooncake_core.errors import MooncakeError
from tests.store.fire.relay import Relay
from tests.store.processes import TTL_S, Cluster, eventually

pytestmark = pytest.mark.cluster

PATIENT_S = 30.0  # what its calls may take


@pytest.fixture
def cluster():
    cluster = Cluster("shm", nodes=1)
    yield cluster
    cluster.close()


def pass_time(seconds):
    end = time.monotonic() + seconds
    eventually(lambda: time.monotonic() > end, "time passes")


def close_in_time(client):
    start = time.monotonic()
    client.close()
    assert time.monotonic() - start < PATIENT_S / 6


def test_a_client_that_lets_a_view_go_is_closed_soon_while_its_master_stands_still(cluster):
    client = cluster.new_client(timeout_s=PATIENT_S)
    assert client.put("key", b"value")
    view = client.view("key")
    cluster.master.signal(signal.SIGSTOP)
    view.close()
    pass_time(TTL_S)  # it says so, and hears nothing
    close_in_time(client)


def test_a_client_that_is_saying_hello_is_closed_soon_while_its_master_stands_still(cluster):
    cluster.master.signal(signal.SIGSTOP)
    client = cluster.new_client(timeout_s=PATIENT_S)

    def ask():
        with pytest.raises(MooncakeError):
            client.put("key", b"value")

    asking = [threading.Thread(target=ask) for _ in range(3)]
    for thread in asking:
        thread.start()
    pass_time(TTL_S)
    close_in_time(client)
    cluster.master.signal(signal.SIGCONT)
    for thread in asking:
        thread.join()


def test_a_client_that_hears_no_answers_is_heard_all_the_while(cluster):
    relay, direct = Relay(cluster.rpc), cluster.rpc
    cluster.rpc = relay.endpoint
    client = cluster.new_client(timeout_s=PATIENT_S)
    cluster.rpc = direct
    try:
        assert client.put("key", b"value")
        view = client.view("key")
        writer = client.open_write("open", size_bytes=0)
        relay.hold_answers()
        view.close()
        pass_time(4 * TTL_S)
        assert cluster.client.stats().expired_sessions == 0
        relay.resume()
        assert writer.commit()
    finally:
        client.close()
        relay.close()
