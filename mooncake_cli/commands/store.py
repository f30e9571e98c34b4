"""`mooncake store`."""

from mooncake_cli.daemon import daemon_command

command = daemon_command(
    "store",
    """Run a store node: lend memory to the pool.

The memory is taken at start-up. Others read and write it directly.
    """,
)
