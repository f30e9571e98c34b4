"""Addresses of instances, and configurations that cannot be served."""

import asyncio
import socket
from pathlib import Path

import pytest
from serving import decode_config, model_config, prefill_config, start

from mooncake_core.errors import ConfigError, ModelError
from mooncake_core.listening import address_of, bind
from mooncake_core.messages import Failed
from mooncake_core.worker.decode_service import serve_decode
from mooncake_core.worker.http import Peers
from mooncake_core.worker.prefill_service import serve_prefill


def test_a_bound_address_is_told_with_its_real_port() -> None:
    with bind("127.0.0.1:0", "listen") as sock:
        assert address_of(sock) == f"127.0.0.1:{sock.getsockname()[1]}"


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this host has no IPv6")
def test_an_ipv6_address_stands_in_brackets() -> None:
    with bind("[::1]:0", "listen") as sock:
        assert address_of(sock).startswith("[::1]:")


async def test_an_address_in_use_is_named_with_its_key(tmp_path: Path) -> None:
    with bind("127.0.0.1:0", "listen") as sock:
        taken = address_of(sock)
        config = decode_config(model_config(tmp_path), listen=taken)
        with pytest.raises(
            ConfigError, match=f"^listen: listen on {taken}: Address already in use"
        ):
            await start(serve_decode, config)


async def test_a_peer_that_is_not_there_is_told_in_plain_words() -> None:
    with socket.socket() as taken:  # bound, but not listening
        taken.bind(("127.0.0.1", 0))
        url = f"http://{address_of(taken)}/cancel"
        peers = Peers()
        try:
            with pytest.raises(OSError, match=f"^{url}: Connection refused$"):
                await peers.post(url, Failed(error="e", retryable=False), 5.0)
        finally:
            await peers.close()


async def test_blocks_that_are_not_whole_pages_are_refused(tmp_path: Path) -> None:
    config = prefill_config(model_config(tmp_path), block_tokens=100)
    with pytest.raises(ConfigError, match="block_tokens: 100"):
        await start(serve_prefill, config)


async def test_a_model_that_does_not_load_ends_the_instance(tmp_path: Path) -> None:
    config = decode_config(model_config(tmp_path, num_attention_heads=3))
    with pytest.raises(ModelError):
        await asyncio.wait_for(start(serve_decode, config), 30)
