"""Longer patience than for the other tests: jobs here import PyTorch, and have limits of their own."""

import faulthandler
from collections.abc import Iterator

import pytest

PATIENCE = 400


@pytest.fixture(autouse=True)
def never_hangs() -> Iterator[None]:
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
