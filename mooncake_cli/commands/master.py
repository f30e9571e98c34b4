"""`mooncake master`."""

from mooncake_cli.daemon import daemon_command

command = daemon_command(
    "master",
    """Run the master: where every stored object lives.

It allocates, leases and evicts, and notices lost nodes; it never touches what is stored. Its state
is in memory: after a restart the pool is empty.
    """,
)
