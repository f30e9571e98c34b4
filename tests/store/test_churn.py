"""A thousand rounds of all that a client does, while others die: nothing grows."""

import pytest

from tests.store.fire.churn import Churn

pytestmark = pytest.mark.cluster


def test_nobody_grows_in_a_thousand_rounds_and_every_byte_comes_back():
    churn = Churn(1000, kill_every=200)
    try:
        problems, _ = churn.run()
    finally:
        churn.close()
    assert problems == []
