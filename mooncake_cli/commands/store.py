"""`mooncake store`: the store node, and as subcommands what is done with a store."""

from mooncake_cli.commands import store_bench, store_objects, store_tasks
from mooncake_cli.daemon import daemon_group

command = daemon_group(
    "store",
    """Run a store node: lend memory to the pool.

The memory is taken at start-up. Others read and write it directly.
    """,
)
command.command("bench")(store_bench.command)
command.command("ls")(store_objects.list_command)
command.command("put")(store_objects.put_command)
command.command("get")(store_objects.get_command)
command.command("rm")(store_objects.remove_command)
command.command("drain")(store_tasks.drain)
command.command("tasks")(store_tasks.tasks)
