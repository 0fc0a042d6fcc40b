import sys

import pytest

from tests.serve.conftest import api, runtime, server

__all__ = ["api", "runtime", "server"]


@pytest.fixture
def forgetting_modules(monkeypatch):
    """Applications that a test imports as `app` leave nothing behind."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    sys.modules.pop("app", None)
