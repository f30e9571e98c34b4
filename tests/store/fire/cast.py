"""The processes under fire, and what is done to them."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading

from tests.store.processes import ROOT, await_stopped


class MemberGone(Exception):
    """The client's process was killed while it was asked."""


class Child:
    """A process of JSON lines that one thread may stop and kill while another asks it."""

    def __init__(self, module, *arguments):
        self.arguments = [sys.executable, "-m", module, *arguments]
        self.lock = threading.Lock()
        self.disturbances = 0
        self.process = None
        self.is_stopped = self.is_killed = False

    def start(self):
        """Start it, and return its first line."""
        self.launch()
        return self.hear()

    def launch(self):
        """Start it, and do not wait."""
        self.close()
        process = subprocess.Popen(
            self.arguments, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        with self.lock:
            self.process, self.is_killed = process, False

    def hear(self):
        """Return its next line."""
        line = self.process.stdout.readline()
        if not line:
            raise MemberGone
        return json.loads(line)

    def tell(self, command):
        """Return its answer to a command."""
        self.say(command)
        return self.hear()

    def say(self, command):
        """Give it a command, and do not wait."""
        try:
            self.process.stdin.write(json.dumps(command) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError as error:
            raise MemberGone from error

    def stop(self):
        """Let it stand still; when this returns it does."""
        with self.lock:
            self.disturbances += 1
            self.is_stopped = True
            self.process.send_signal(signal.SIGSTOP)
            await_stopped(self.process.pid)

    def resume(self):
        """Let it go on."""
        with self.lock:
            self.process.send_signal(signal.SIGCONT)
            self.is_stopped = False

    def kill(self):
        """End it without warning."""
        with self.lock:
            self.disturbances += 1
            self.is_stopped, self.is_killed = False, True
            self.process.kill()
        self.process.wait()

    def leave(self):
        """Let it end as it should; whether it did."""
        self.process.stdin.close()
        return self.process.wait(timeout=20) == 0

    def close(self):
        """End it, however it is. Again is harmless."""
        if self.process is None:
            return
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        with contextlib.suppress(BrokenPipeError):  # what was not flushed is of no use
            self.process.stdin.close()


def new_master(**config):
    """Return a master that is not started."""
    return Child("tests.store.daemon", "master", json.dumps(config))


def new_node(**config):
    """Return a store node that is not started."""
    return Child("tests.store.daemon", "node", json.dumps(config))


def new_member(**config):
    """Return a client that is not started."""
    return Child("tests.store.fire.member", json.dumps(config))


def new_stepper(**config):
    """Return a client that takes one step at a time, and is not started."""
    return Child("tests.store.fire.stepper", json.dumps(config))


def new_churner(**config):
    """Return a client that makes whole rounds, and is not started."""
    return Child("tests.store.fire.churner", json.dumps(config))
