from __future__ import annotations

import getpass
import json

import pytest

from tests.serve.cli.conftest import Run
from tests.serve.double import MemoryRuntime


@pytest.fixture
def approval(runtime: MemoryRuntime):
    return runtime.request_approval()


def test_what_waits_is_listed(owlclaw: Run, approval):
    result = owlclaw("approvals", "list")

    assert result.exit_code == 0
    assert "apr_1" in result.output
    assert "mail.send" in result.output


def test_nothing_waits(owlclaw: Run):
    assert "nothing waits for a decision" in owlclaw("approvals", "list").output


def test_an_approval_is_shown_with_all_that_it_takes_to_judge_it(owlclaw: Run, approval):
    shown = owlclaw("approvals", "show", "apr_1").output

    for part in ("assistant (role assistant)", "run_1, by agent run_0", "write, dangerous", "dangerous tools ask"):
        assert part in shown
    for part in ('"to":"张三"', "/work", "app.check changed", "Send a mail."):
        assert part in shown


def test_a_call_is_allowed_by_the_user_of_the_machine(owlclaw: Run, approval):
    result = owlclaw("approvals", "allow", "apr_1", "--reason", "好", "--json")

    decision = json.loads(result.output)["decision"]
    assert decision == {"decision": "allow_once", "reason": "好", "by": getpass.getuser(), "arguments": None}


@pytest.mark.parametrize("command", ["allow", "deny"])
def test_who_decides_can_be_said(owlclaw: Run, approval, command: str):
    result = owlclaw("approvals", command, "apr_1", "--by", "ada", "--json")

    assert json.loads(result.output)["decision"]["by"] == "ada"
    assert "the user of this machine" in " ".join(owlclaw("approvals", command, "--help").output.split())


def test_a_call_is_allowed_for_the_session_and_with_other_arguments(owlclaw: Run, approval):
    result = owlclaw("approvals", "allow", "apr_1", "--session", "--arguments", '{"to": "王五"}')

    assert result.exit_code == 0
    assert "allowed" in result.output
    assert f"allow_for_session by {getpass.getuser()}" in result.output
    assert '{"to":"王五"}' in result.output


def test_a_call_is_denied_and_a_second_decision_refused(owlclaw: Run, approval):
    assert "denied" in owlclaw("approvals", "deny", "apr_1", "--reason", "no").output

    result = owlclaw("approvals", "allow", "apr_1")

    assert result.exit_code == 1
    assert "approval 'apr_1' is not pending: it is denied" in result.output
    assert "apr_1" not in owlclaw("approvals", "list").output
    assert "apr_1" in owlclaw("approvals", "list", "--status", "all").output
    assert json.loads(owlclaw("approvals", "list", "--status", "denied", "--json").output)[0]["approval_id"] == "apr_1"


@pytest.mark.parametrize("arguments", ["{", "[]"])
def test_arguments_that_are_no_object_are_wrong_usage(owlclaw: Run, approval, arguments):
    assert owlclaw("approvals", "allow", "apr_1", "--arguments", arguments).exit_code == 2


def test_a_status_that_there_is_not_is_wrong_usage(owlclaw: Run):
    assert owlclaw("approvals", "list", "--status", "open").exit_code == 2


def test_who_allowed_a_call_and_who_has_to_still_is_shown(owlclaw: Run, runtime: MemoryRuntime):
    runtime.request_approval(needed=2)

    assert "still needed 2 allowances by different people" in owlclaw("approvals", "show", "apr_1").output
    shown = owlclaw("approvals", "allow", "apr_1", "--by", "ada", "--reason", "好").output

    assert "pending" in shown
    assert "allow_once by ada, " in shown
    assert ": 好" in shown
    assert "still needed 1 allowance by another person" in shown
