"""Mooncake's library: a folder is a role, imports point down docs/ARCHITECTURE.md's list only."""

__version__ = "0.1.0"
