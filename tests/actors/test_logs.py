import json
import logging

import pytest

from actors.logs import LogPlan, configure


@pytest.fixture(autouse=True)
def restored():
    loggers = [logging.getLogger(name) for name in ("owlclaw_ray", "actors", "serve")]
    before = [(logger.handlers[:], logger.level, logger.propagate) for logger in loggers]
    yield
    for logger, (handlers, level, propagate) in zip(loggers, before, strict=True):
        logger.handlers[:], logger.propagate = handlers, propagate
        logger.setLevel(level)


def test_json_logs_are_one_object_a_line_with_the_trace_of_an_exception(capsys):
    configure(LogPlan("info", "json"))

    try:
        int("磁盘满了")
    except ValueError:
        logging.getLogger("owlclaw_ray.engine").exception("run %s failed", "run_1")

    [line] = capsys.readouterr().err.splitlines()
    entry = json.loads(line)
    assert (entry["event"], entry["level"], entry["logger"]) == ("run run_1 failed", "error", "owlclaw_ray.engine")
    assert "磁盘满了" in entry["exception"]


def test_text_logs_say_level_and_message_and_keep_to_the_level(capsys):
    configure(LogPlan("warning", "text"))

    logging.getLogger("actors.keeper").info("not this")
    logging.getLogger("actors.keeper").warning("but this")

    said = capsys.readouterr().err
    assert "not this" not in said
    assert "warning" in said
    assert "but this" in said


@pytest.mark.parametrize("form", ["text", "json"])
def test_half_characters_are_logged_as_escapes(capfdbinary, form):
    configure(LogPlan("info", form))

    logging.getLogger("owlclaw_ray.tools").error("half: %s", "\ud800")

    assert b"half: " in capfdbinary.readouterr().err
