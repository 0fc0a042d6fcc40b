from __future__ import annotations

import json

from owlclaw_ray.secrets.keyring import read_keys
from tests.serve.cli.conftest import Run

VALUE = "correct-horse-battery-staple"


def test_keygen_prints_a_new_key_each_time_and_asks_no_server(cli: Run):
    first, second = (cli("secrets", "keygen").output.strip() for _ in range(2))

    assert len({*read_keys(f"{first},{second}").ids}) == 2


def test_a_value_comes_from_standard_input_and_is_printed_by_no_command(owlclaw: Run):
    outputs = [
        owlclaw("secrets", "set", "CRM_TOKEN", stdin=f"{VALUE}\n"),
        owlclaw("secrets", "list"),
        owlclaw("secrets", "list", "--json"),
        owlclaw("secrets", "rotate"),
        owlclaw("secrets", "delete", "CRM_TOKEN"),
        owlclaw("secrets", "list"),
    ]

    assert [each.exit_code for each in outputs] == [0] * len(outputs)
    assert not any(VALUE in each.output for each in outputs)
    assert [each["name"] for each in json.loads(outputs[2].output)] == ["CRM_TOKEN"]
    assert "0 secrets encrypted with the newest master key" in outputs[3].output
    assert "no secrets" in outputs[5].output


def test_a_line_end_after_a_value_is_not_a_part_of_it(owlclaw: Run, runtime):
    stored = {}
    keep = runtime.secrets.set_secret

    async def noting(tenant, name, value, by):
        stored[name] = value
        return await keep(tenant, name, value, by)

    runtime.secrets.set_secret = noting
    owlclaw("secrets", "set", "PLAIN", stdin=VALUE)
    owlclaw("secrets", "set", "UNIX", stdin=f"{VALUE}\n")
    owlclaw("secrets", "set", "WINDOWS", stdin=f"{VALUE}\r\n")
    owlclaw("secrets", "set", "LINES", stdin="-----BEGIN\nabc\n-----END\n\n")

    assert stored == {"PLAIN": VALUE, "UNIX": VALUE, "WINDOWS": VALUE, "LINES": "-----BEGIN\nabc\n-----END\n"}


def test_a_value_cannot_be_an_argument(owlclaw: Run):
    refused = owlclaw("secrets", "set", "CRM_TOKEN", VALUE)

    assert refused.exit_code == 2


def test_a_secret_that_is_not_there_names_the_command_that_lists_them(owlclaw: Run):
    refused = owlclaw("secrets", "delete", "CRM_TOKEN")

    assert refused.exit_code == 1
    assert "owlclaw secrets list" in refused.output
