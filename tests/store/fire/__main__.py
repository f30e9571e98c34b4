"""A store under fire, by hand: `python -m tests.store.fire --seconds 600 --seed 1`."""

from __future__ import annotations

import argparse
import json
import secrets
import sys

from tests.store.fire.driver import Fire


def main():
    """Print the report as JSON; 1 when something was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 32))
    parser.add_argument("--tight", action="store_true", help="room for half of what is put")
    given = parser.parse_args()
    fire = Fire(given.seed, given.seconds, is_tight=given.tight)
    print(f"again: {fire.replay}", file=sys.stderr)
    try:
        report = fire.run()
    finally:
        fire.close()
    print(json.dumps(report.summary(), indent=2))
    for problem in report.problems():
        print(f"wrong: {problem}", file=sys.stderr)
    return 1 if report.problems() else 0


if __name__ == "__main__":
    sys.exit(main())
