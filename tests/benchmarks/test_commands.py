from benchmarks.commands import COMMANDS, measure_all


async def test_each_command_is_measured_against_a_server_that_answers_it():
    measured = await measure_all(("--version", "runs", "tail {run}", "runs --url http://127.0.0.1:9", "fly"), calls=1)

    assert [(command.partition("run_")[0], cost.code) for command, cost in measured] == [
        ("--version", 0),
        ("runs", 0),
        ("tail ", 0),
        ("runs --url http://127.0.0.1:9", 1),
        ("fly", 2),
    ]
    assert all(0 < cost.cpu < 60 and cost.wall > 0 for _, cost in measured)
    assert any(command.startswith("trigger") for command in COMMANDS)
