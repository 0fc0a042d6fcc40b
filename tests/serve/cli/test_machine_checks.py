import sys
from types import SimpleNamespace

import pytest

from serve.cli.machine_checks import check_machine


@pytest.fixture
def ray(monkeypatch, tmp_path):
    """Where the compiled module of Ray's package is kept: not beside it, if a variable says so."""
    origin = tmp_path / "site-packages" / "ray" / "__init__.py"
    cached = tmp_path / "compiled" / "ray" / "__init__.pyc"
    spec = SimpleNamespace(origin=str(origin), cached=str(cached))
    monkeypatch.setattr("serve.cli.machine_checks.find_spec", lambda _: spec)
    return cached


def compiled():
    return [(each.message, each.fix) for each in check_machine() if each.subject == "compiled modules"]


@pytest.mark.parametrize(
    ("unwritten", "why"), [(True, "PYTHONDONTWRITEBYTECODE is set"), (False, "site-packages/ray cannot be written")]
)
def test_a_python_that_compiles_ray_in_each_process_is_named_with_what_to_do(
    ray, monkeypatch, tmp_path, unwritten, why
):
    monkeypatch.setattr(sys, "dont_write_bytecode", unwritten)

    [(message, fix)] = compiled()

    assert why in message
    assert fix == f"compile them once, with: {sys.executable} -m compileall -q {tmp_path / 'site-packages'}"


def test_compiled_modules_that_are_kept_are_not_mentioned(ray):
    ray.parent.mkdir(parents=True)
    ray.touch()

    assert compiled() == []
