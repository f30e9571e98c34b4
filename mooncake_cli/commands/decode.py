"""`mooncake decode`."""

from mooncake_cli.daemon import daemon_command

command = daemon_command(
    "decode",
    """Run a decode instance: write answers.

It receives the KV cache of prompts and continues them, many in one batch.
    """,
)
