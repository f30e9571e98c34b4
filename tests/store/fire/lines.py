"""The side of a process that is told what to do in lines of JSON."""

from __future__ import annotations

import json
import sys

from mooncake_core.errors import MooncakeError


def answer_lines(target):
    """Call the method that each line of stdin names, [name, arguments], and print its answer."""
    print('"ready"', flush=True)
    for line in sys.stdin:
        name, arguments = json.loads(line)
        try:
            answer = {"value": getattr(target, name)(*arguments)}
        except MooncakeError as error:
            answer = {"error": type(error).__name__, "message": str(error)}
        print(json.dumps(answer), flush=True)
    target.close()
