"""Tests that start a whole cluster of processes."""
