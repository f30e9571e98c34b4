"""A store of real processes that are stopped and killed while readers and writers verify."""

import pytest

from tests.store.fire.driver import Fire

pytestmark = pytest.mark.cluster


def test_a_store_under_fire_loses_nothing_gives_no_wrong_byte_and_keeps_hitting():
    fire = Fire(seed=20, seconds=30)
    try:
        report = fire.run()
    finally:
        fire.close()
    assert report.problems() == [], f"again: {fire.replay}"
    struck = ("nodes_killed", "nodes_stopped", "clients_killed", "clients_stopped")
    assert all(report.counts[what] > 0 for what in struck), report.counts
