"""The `mooncake` command."""
