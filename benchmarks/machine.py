"""Where and of what a figure is: opens the output of every script."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path


def describe(options: object) -> str:
    """Return the processor, the system, the commit, and what was asked for."""
    return f"{_processor()}, {os.cpu_count()} CPUs, {platform.platform()}, {_commit()}, {options}"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def _commit() -> str:
    """Return "commit" and its number; with a + where the sources are not as committed."""
    root = Path(__file__).resolve().parent
    command = ["git", "-C", str(root), "describe", "--always", "--dirty=+", "--exclude=*"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"commit {found.stdout.strip()}" if found.returncode == 0 else "no commit"
