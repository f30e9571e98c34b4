"""The built-in model, loaded once a session."""

import pytest

from mooncake_core.model_spec.checkpoint import BUILT_IN, prepare_checkpoint
from tests.model import tiny


@pytest.fixture(scope="session")
def smollm():
    return tiny.load(prepare_checkpoint(BUILT_IN))
