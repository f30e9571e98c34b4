"""Reading sysfs and procfs, or a recorded copy: never fails, keeps what it could not read."""

from __future__ import annotations

import os
from pathlib import Path


class Tree:
    """Files below a root; whatever cannot be read is None or empty, and said in `problems`.

    A file that is not there is no problem: most devices have only some of the files.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.problems: list[str] = []

    def text(self, path: str) -> str | None:
        """Return a file's text without white space around it."""
        try:
            return (self.root / path).read_text(encoding="utf-8", errors="replace").strip()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            # EINVAL is how drivers say that a value does not apply, such as the speed of a link
            # that is down; unset GIDs are read so too.
            if error.errno != 22:
                self.problems.append(f"/{path}: {error.strerror}")
            return None

    def number(self, path: str) -> int | None:
        """Return a file's number; None also for garbage, which is a problem, and below 0."""
        text = self.text(path)
        if text is None:
            return None
        try:
            value = int(text)
        except ValueError:
            self.problems.append(f"/{path}: {text[:40]!r} is no number")
            return None
        return value if value >= 0 else None

    def names(self, path: str) -> list[str]:
        """Return a folder's entries, sorted: numbers by their value."""
        try:
            names = os.listdir(self.root / path)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            self.problems.append(f"/{path}: {error.strerror}")
            return []
        return sorted(
            names, key=lambda name: (not name.isdigit(), int(name) if name.isdigit() else 0, name)
        )

    def has(self, path: str) -> bool:
        """Whether there is such a file or folder."""
        return (self.root / path).exists()

    def link(self, path: str) -> str:
        """Return the last part of what a symbolic link points to; empty if it is none."""
        try:
            return Path(os.readlink(self.root / path)).name
        except OSError:
            return ""
