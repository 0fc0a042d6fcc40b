import io
import json
import logging
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import pytest

from actors.logs import HidingStream, LogPlan, configure
from owlclaw_ray.app import OwlClaw
from owlclaw_ray.ids import AgentId, RunId
from owlclaw_ray.kernel.log_context import about
from owlclaw_ray.testing.in_process import in_process_runtime


@pytest.fixture(autouse=True)
def restored(monkeypatch):
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, getattr(sys, name))
    loggers = [logging.getLogger(name) for name in ("owlclaw_ray", "actors", "serve", "console")]
    before = [(logger.handlers[:], logger.level, logger.propagate) for logger in loggers]
    root = logging.getLogger()
    of_root = root.handlers[:]
    yield
    root.handlers[:] = of_root
    logging.captureWarnings(capture=False)
    for logger, (handlers, level, propagate) in zip(loggers, before, strict=True):
        logger.handlers[:], logger.propagate = handlers, propagate
        logger.setLevel(level)


def test_json_logs_are_one_object_a_line_with_the_trace_of_an_exception(capsys):
    configure(LogPlan("info", "json"))

    try:
        int("磁盘满了")
    except ValueError:
        logging.getLogger("owlclaw_ray.runs").exception("run %s failed", "run_1")

    [line] = capsys.readouterr().err.splitlines()
    entry = json.loads(line)
    assert (entry["event"], entry["level"], entry["logger"]) == ("run run_1 failed", "error", "owlclaw_ray.runs")
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


def test_json_logs_say_which_run_of_which_agent_they_are_about(capsys):
    configure(LogPlan("info", "json"))
    logger = logging.getLogger("owlclaw_ray.runs")

    with about(RunId("run_1"), AgentId("trader:茅台")):
        logger.info("inside")
    logger.info("outside")

    inside, outside = map(json.loads, capsys.readouterr().err.splitlines())
    assert (inside["run_id"], inside["agent"]) == ("run_1", "trader:茅台")
    assert not {"run_id", "agent"} & outside.keys()


async def test_what_a_run_its_models_and_its_tools_log_is_about_the_run(tmp_path, capsys):
    configure(LogPlan("info", "json"))
    folder = tmp_path / "agents" / "watch"
    folder.mkdir(parents=True)
    (folder / "SOUL.md").write_text("You are calm.")
    (folder / "IDENTITY.md").write_text("# Watch\n\n## My Capabilities\n- look\n")
    (folder / "agent.yaml").write_text('{"model": "scripted:script.yaml", "limits": {"turns": 1}}')
    call = {"name": "shop__look", "arguments": {}}
    (folder / "script.yaml").write_text(json.dumps({"rules": [{"turns": [{"tool_calls": [call]}]}]}))
    app = OwlClaw("shop")

    @app.tool("shop.look", description="Look.")
    def look() -> str:
        raise ZeroDivisionError

    async with in_process_runtime(agents_dir=folder.parent, data_dir=tmp_path / "data", app=app) as runtime:
        run = await runtime.trigger("watch")

    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    told = {line["logger"]: (line.get("run_id"), line.get("agent")) for line in lines}
    assert told["owlclaw_ray.tools.executor"] == (run.run_id, "watch")
    assert told["owlclaw_ray.runs.run_loop"] == (run.run_id, "watch")


class Stderr(logging.StreamHandler):
    """Writes to what is the standard error now."""

    @property
    def stream(self):
        return sys.stderr

    @stream.setter
    def stream(self, _):
        pass


@pytest.fixture
def library():
    """A library's logger, with a handler of its own."""
    logger = logging.getLogger("some.library")
    logger.handlers[:], logger.propagate = [Stderr()], False
    yield logger
    logger.handlers[:], logger.propagate = [], True


def test_as_json_the_loggers_of_libraries_and_warnings_are_objects_too(capsys, library):
    configure(LogPlan("info", "json"))

    library.warning("from %s", "a library")
    logging.getLogger("another.library").error("through the root")
    logging.getLogger("another.library").info("below its level")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old", DeprecationWarning, stacklevel=1)

    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(each["logger"], each["level"]) for each in lines] == [
        ("some.library", "warning"),
        ("another.library", "error"),
        ("py.warnings", "warning"),
    ]
    assert lines[0]["event"] == "from a library"


def test_as_text_the_loggers_of_libraries_are_left_alone(capsys, library):
    configure(LogPlan("info", "text"))

    library.warning("from a library")

    assert capsys.readouterr().err == "from a library\n"


def test_as_json_what_is_printed_is_objects_too_and_what_marks_lines_for_ray_is_left_out(capsys):
    configure(LogPlan("info", "json"))
    configure(LogPlan("info", "json"))
    logging.getLogger("actors.keeper").info("logged")

    sys.stdout.write("said by a tool\n")
    sys.stderr.write(":task_name:run_tools\n\x1b[31mred\x1b[0m\n")

    out, err = ([json.loads(line) for line in text.splitlines()] for text in capsys.readouterr())
    assert [(each["logger"], each["event"]) for each in out] == [("stdout", "said by a tool")]
    assert [(each["logger"], each["event"]) for each in err] == [("actors.keeper", "logged"), ("stderr", "red")]


@pytest.mark.ray
def test_as_json_what_ray_and_its_workers_log_is_objects():
    """A Ray of its own, with the environment that `owlclaw up` makes: what its processes and an actor write."""
    with tempfile.TemporaryDirectory(prefix="owl-", dir="/tmp") as folder:
        ended = subprocess.run(
            [sys.executable, "-c", _RAY_IN_JSON, folder], capture_output=True, text=True, check=False, timeout=300
        )
        assert ended.returncode == 0, ended.stderr[-4_000:]
        logs = next(Path(folder).glob("session_2*")) / "logs"
        told = [path for name in ("worker-*.err", "raylet.out", "gcs_server.out") for path in logs.glob(name)]
        lines = [(path, line) for path in told for line in path.read_text().splitlines() if line.strip()]
    entries = [(path.name, _entry(line)) for path, line in lines if not line.startswith(_WHOSE)]
    assert {"from the actor", "from a library"} <= {entry.get("event") for _, entry in entries}
    assert [(name, entry) for name, entry in entries if "not JSON" in entry] == []


_WHOSE = (":job_id:", ":actor_name:", ":task_name:")
"""How Ray marks whose lines follow."""


def _entry(line):
    try:
        return json.loads(line)
    except ValueError:
        return {"not JSON": line[:300]}


_RAY_IN_JSON = """
import logging, os, sys
from actors.environment import ray_environment
os.environ.update(ray_environment(1, alone=True, json_logs=True))
import ray
from actors.logs import LogPlan, configure
ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False, _temp_dir=sys.argv[1])

@ray.remote
class Actor:
    def __init__(self):
        configure(LogPlan("info", "json"))

    def say(self):
        logging.getLogger("actors.keeper").info("from the actor")
        logging.getLogger("a.library").warning("from a library")

ray.get(Actor.remote().say.remote())
ray.shutdown()
"""


@pytest.mark.parametrize("form", ["text", "json"])
def test_what_is_to_be_hidden_is_in_no_line_and_no_trace(capsys, form):
    configure(LogPlan("info", form), lambda line: line.replace("swordfish", "[redacted]"))

    try:
        int("swordfish")
    except ValueError:
        logging.getLogger("owlclaw_ray.tools").exception("failed with %s", "swordfish")

    said = capsys.readouterr().err
    assert "swordfish" not in said
    assert said.count("[redacted]") >= 2


def test_what_a_process_prints_is_without_what_must_not_be_said_and_else_as_it_was():
    stream = io.StringIO()
    hiding = HidingStream(stream, lambda text: text.replace("secret-7", "[redacted]"))

    print("it is secret-7", "and 猫", file=hiding)
    hiding.writelines(["secret-7\n", "no more\n"])
    hiding.flush()

    assert stream.getvalue() == "it is [redacted] and 猫\n[redacted]\nno more\n"
    assert hiding.write("secret-7") == len("secret-7")
    assert (hiding.closed, hiding.seekable()) == (False, True)
