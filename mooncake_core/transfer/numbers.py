"""Typing of the arrays that describe batches. Pure."""

from __future__ import annotations

from typing import Any

# array.array("Q"), or anything else that exports a one-dimensional, C-contiguous buffer of unsigned
# 64-bit integers. Python has no type for that before 3.12; another dtype is a TypeError.
Numbers = Any
