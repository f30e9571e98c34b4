"""A target in another process."""

from collections.abc import Iterator

import pytest

from mooncake_core.config import TransferConfig
from mooncake_core.te_bench.control import Control
from mooncake_core.te_bench.loopback import LoopbackTarget


@pytest.fixture(scope="session")
def target() -> Iterator[LoopbackTarget]:
    with LoopbackTarget(TransferConfig()) as target:
        yield target


@pytest.fixture
def control(target: LoopbackTarget) -> Iterator[Control]:
    with Control(target.address) as control:
        yield control
