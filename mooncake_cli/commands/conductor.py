"""`mooncake conductor`."""

from mooncake_cli.daemon import daemon_command

command = daemon_command(
    "conductor",
    """Run the conductor: OpenAI-compatible gateway and scheduler.

Clients speak to it; instances register at it. It sends each request where its first token will come
soonest, and refuses what cannot be served in time.
    """,
)
