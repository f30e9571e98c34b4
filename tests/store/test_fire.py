"""A store of real processes that are stopped and killed while readers and writers verify."""

import pytest

from tests.store.fire.driver import Fire

pytestmark = pytest.mark.cluster

STRIKES = ("nodes_killed", "nodes_stopped", "clients_killed", "clients_stopped")


def burn(fire):
    try:
        report = fire.run()
    finally:
        fire.close()
    assert report.problems() == [], f"again: {fire.replay}"
    assert all(report.counts[what] > 0 for what in STRIKES), report.counts


def test_a_store_under_fire_loses_nothing_gives_no_wrong_byte_and_keeps_hitting():
    burn(Fire(seed=20, seconds=20))


def test_a_store_under_fire_that_uses_its_memory_again_all_the_time_gives_no_wrong_byte():
    burn(Fire(seed=21, seconds=10, is_tight=True))
