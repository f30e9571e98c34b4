"""Reading sysfs and procfs, or a recorded copy: never fails, keeps what it could not read."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

_PCI = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_HOST_BRIDGE = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
_LARGEST = (1 << 63) - 1


class Tree:
    """Files below a root; whatever cannot be read is None or empty, and said in `problems`.

    A file that is not there is no problem: most devices have only some of the files.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.problems: list[str] = []

    @property
    def is_live(self) -> bool:
        """Whether this is the machine itself, and no copy."""
        return self.root == Path("/")

    def text(self, path: str) -> str | None:
        """Return a file's text without white space around it."""
        try:
            return (self.root / path).read_text(encoding="utf-8", errors="replace").strip()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            # EINVAL is how drivers say that a value does not apply, such as the speed of a link
            # that is down; unset GIDs are read so too.
            if error.errno != errno.EINVAL:
                self.problems.append(f"/{path}: {error.strerror}")
            return None

    def number(self, path: str, base: int = 10) -> int | None:
        """Return a file's number; None also for garbage, which is a problem, and below 0."""
        text = self.text(path)
        if text is None:
            return None
        try:
            value = int(text, base)
        except ValueError:
            value = _LARGEST + 1
        if value > _LARGEST:
            self.problems.append(f"/{path}: {text[:40]!r} is no number")
            return None
        return value if value >= 0 else None

    def names(self, path: str) -> list[str]:
        """Return a folder's entries, sorted: numbers by their value."""
        try:
            found = os.listdir(self.root / path)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            self.problems.append(f"/{path}: {error.strerror}")
            return []
        # The kernel's names are plain; others could be neither shown nor written as JSON.
        names = [name for name in found if name.isascii() and name.isprintable()]
        return sorted(
            names, key=lambda name: (not name.isdigit(), int(name) if name.isdigit() else 0, name)
        )

    def has(self, path: str) -> bool:
        """Whether there is such a file or folder."""
        return os.path.exists(self.root / path)

    def link(self, path: str) -> str:
        """Return the last part of what a symbolic link points to; empty if it is none."""
        try:
            return Path(os.readlink(self.root / path)).name
        except OSError:
            return ""

    def pci_path(self, path: str) -> tuple[str, ...]:
        """Return the PCI functions on the way to a device, the host bridge first.

        Args:
            path: of the device, or of a link to it.
        """
        real, root = os.path.realpath(self.root / path), os.path.realpath(self.root)
        parts = Path(real).parts[len(Path(root).parts) :] if real.startswith(root) else ()
        return tuple(part for part in parts if _PCI.fullmatch(part) or _HOST_BRIDGE.fullmatch(part))

    def pci(self, path: str) -> str:
        """Return the PCI address of a device; empty: it is none, nor on one."""
        uevent = self.text(f"{path}/uevent") or ""
        match = re.search(r"^PCI_SLOT_NAME=(\S+)$", uevent, re.MULTILINE)
        if match:
            return match.group(1)
        # virtio: the interface's device is a child of the PCI function.
        on_the_way = self.pci_path(path)
        return on_the_way[-1] if on_the_way and _PCI.fullmatch(on_the_way[-1]) else ""
