"""Ctrl-C before a command has begun."""

import signal
import subprocess
import sys

INTERRUPTED_WHILE_LOADING = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever the suite was started with
from mooncake_cli.app import main

class Finder:
    @staticmethod
    def find_spec(name, path, target=None):
        if name == "mooncake_core._native":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder)
sys.exit(main(["te-bench", "--help"]))
"""


def test_an_interrupt_while_modules_are_loaded_ends_the_process_without_a_word() -> None:
    command = [sys.executable, "-c", INTERRUPTED_WHILE_LOADING]
    done = subprocess.run(command, check=False, capture_output=True, timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")
