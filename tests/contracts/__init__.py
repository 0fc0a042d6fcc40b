"""What every store, and every alarm clock, promises: suites that the tests of an implementation subclass."""

from pathlib import Path

import pytest

pytest.register_assert_rewrite(*(f"{__name__}.{file.stem}" for file in Path(__file__).parent.glob("[a-z]*.py")))
