"""`mooncake prefill`."""

from mooncake_cli.daemon import daemon_command

command = daemon_command(
    "prefill",
    """Run a prefill instance: read prompts.

It loads the longest prefix that the pool has, computes the rest, and sends the KV cache to a decode
instance and to the pool, layer by layer.
    """,
)
