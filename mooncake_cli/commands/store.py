"""`mooncake store`: the store node, and as subcommands what is done with a store."""

from mooncake_cli.commands import store_bench
from mooncake_cli.daemon import daemon_group

command = daemon_group(
    "store",
    """Run a store node: lend memory to the pool.

The memory is taken at start-up. Others read and write it directly.
    """,
)
command.command("bench")(store_bench.command)
