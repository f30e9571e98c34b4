"""Tests of the conductor."""
