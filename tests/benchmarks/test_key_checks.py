import pytest

from benchmarks import key_checks
from benchmarks.key_checks import key_check_ms


def test_a_key_check_costs_something_and_much_less_than_a_request():
    assert 0 < key_check_ms(requests=2_000, rounds=3) < 1


def test_what_the_gate_refuses_is_no_measurement(monkeypatch):
    monkeypatch.setattr(key_checks, "_PATH", "/v1/nothing")

    with pytest.raises(RuntimeError, match="404"):
        key_check_ms(requests=1, rounds=1)
