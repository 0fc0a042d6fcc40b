"""The measurement of what the runtime itself takes for a tool call."""

import pytest

from benchmarks.tool_path import CALLS, FEW, GOAL_MS, MANY, Overhead, Path, application, figures, name_of


async def test_every_tool_has_its_turn_and_no_call_fails():
    path = Path(FEW)
    await path.call_ms()

    called = {path._call(number).name for number in range(CALLS)}

    assert called == {name_of(number).replace(".", "__") for number in range(FEW)}


async def test_a_run_has_the_turns_that_are_measured():
    turn = await Path(FEW).turn_ms()

    assert turn.run > 0


def test_the_tools_differ_in_schema_and_expression():
    schemas = [str(each.input_schema) for each in application(MANY).registry.definitions()]

    assert len(set(schemas)) == MANY


@pytest.mark.parametrize(
    ("few", "many", "met"),
    [
        (0.1, 0.12, [True, True]),
        (0.1, 0.2, [True, False]),
        (0.29, 0.301, [True, False]),
        (GOAL_MS + 0.01, 0.2, [False, True]),
    ],
)
def test_a_call_is_judged_by_what_it_takes_and_by_how_it_grows(few, many, met):
    found = {FEW: Overhead(few, 1.0, 2.0), MANY: Overhead(many, 1.5, 2.5)}

    told = figures(found, 0.01)

    assert [each.met for each in told if each.goal] == met
    assert [each.baseline for each in told] == [0.01, few, 2.0, 1.0]
