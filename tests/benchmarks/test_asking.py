"""Questions that the tests make up, asked by the real command."""

import sys
from pathlib import Path
from types import ModuleType

import orjson
import pytest

from benchmarks import __main__ as command
from benchmarks import suites
from benchmarks.question import Answer, Figure, Plot, Series

FIGURE = Figure(
    "runs_per_second", 412.3, "runs/s", baseline=824.6, baseline_is="bare Ray", goal="at least 0.5", met=True
)
PLOT = Plot("Runs a second", "agents", "runs/s", (Series("ours", ("1", "50"), (30.0, 400.0)),))


@pytest.fixture
def define(monkeypatch):
    """Makes a question that does what the given function does."""
    extras = dict(suites.EXTRAS)
    monkeypatch.setattr(command, "EXTRAS", extras)
    monkeypatch.setattr(suites, "EXTRAS", extras)

    def make(name, answer, extra=""):
        module = ModuleType(f"benchmarks.{name}")
        module.TITLE, module.answer = f"What about {name}?", answer
        monkeypatch.setitem(sys.modules, module.__name__, module)
        extras[name] = extra

    return make


@pytest.fixture
def ask(tmp_path, capsys):
    def run(*names):
        code = command.main([*names, "--out", str(tmp_path)])
        return code, orjson.loads((tmp_path / "results.json").read_bytes()), capsys.readouterr().out

    return run


def answers(*figures, plots=()):
    def answer(size, say):
        say(f"measuring in size {size.value}")
        return Answer("made_up", figures, plots, {"seen": [1, 2]})

    return answer


def fails(_size, _say):
    raise RuntimeError("the ray is bent")


def lacks(_size, _say):
    raise ModuleNotFoundError("No module named 'locust'", name="locust")


def test_an_answer_is_reported_as_json_and_as_a_table(define, ask, tmp_path):
    define("made_up", answers(FIGURE))

    code, results, said = ask("made_up")

    assert code == 0
    assert "made_up: measuring in size full" in said
    (answer,) = results["answers"]
    assert answer["figures"][0]["ratio"] == 0.5
    assert (answer["title"], answer["size"], answer["details"]) == ("What about made_up?", "full", {"seen": [1, 2]})
    assert results["command"].startswith("python -m benchmarks made_up")
    assert results["machine"]["cores"] > 0
    assert results["machine"]["packages"]["ray"]
    assert len(results["load_average"]["before"]) == 3
    row = "| made_up | runs_per_second | 412 runs/s | 825 runs/s | 0.50 | at least 0.5 | yes |"
    assert row in (tmp_path / "results.md").read_text()


def test_a_question_that_fails_is_reported_the_others_are_asked_and_the_exit_code_is_1(define, ask):
    define("bent", fails)
    define("made_up", answers(FIGURE))

    code, results, said = ask("bent", "made_up")

    assert code == 1
    assert [answer["question"] for answer in results["answers"]] == ["made_up"]
    assert results["failed"][0]["error"] == "RuntimeError: the ray is bent"
    assert "in fails" in results["failed"][0]["trace"]
    assert results["open"] == []
    assert "**bent** failed: RuntimeError: the ray is bent" in said


def test_a_question_whose_extra_is_missing_names_the_command_that_installs_it(define, ask):
    define("rare", lacks, extra="rarities")
    define("made_up", answers(FIGURE))

    code, results, said = ask("rare", "made_up")

    assert code == 0
    reason = "locust is not installed; install it with: pip install -e '.[rarities]'"
    assert results["unavailable"] == [{"question": "rare", "reason": reason}]
    assert f"**rare** was not asked: {reason}" in said


def test_where_nothing_is_answered_the_exit_code_is_1(define, ask):
    define("rare", lacks, extra="rarities")

    assert ask("rare")[0] == 1


def test_a_missing_module_of_ours_is_a_failure_whatever_the_extra(define, ask):
    def broken(_size, _say):
        raise ModuleNotFoundError("No module named 'benchmarks.gone'", name="benchmarks.gone")

    define("broken", broken, extra="rarities")

    code, results, _ = ask("broken")
    assert code == 1
    assert results["failed"]


def test_an_unknown_name_is_wrong_usage(capsys, tmp_path):
    assert command.main(["nonsense", "--out", str(tmp_path / "results")]) == 2
    assert "'nonsense' is neither a suite" in capsys.readouterr().err
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("out", ["a_file", "a_file/below", "/proc/owlclaw-results", "/sys"])
def test_a_folder_that_takes_no_results_is_refused_before_anything_is_measured(
    define, tmp_path, monkeypatch, capsys, out
):
    define("made_up", fails)
    monkeypatch.chdir(tmp_path)
    Path("a_file").touch()

    assert command.main(["made_up", "--out", out]) == 2

    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"no results can be written to {out}: ")
    assert said.err.endswith("; name a folder with --out\n")


def test_what_was_answered_before_an_interruption_is_kept(define, tmp_path, capsys):
    def interrupted(_size, _say):
        raise KeyboardInterrupt

    define("made_up", answers(FIGURE))
    define("long", interrupted)

    assert command.main(["made_up", "long", "--out", str(tmp_path)]) == 130
    assert "412 runs/s" in (tmp_path / "results.md").read_text()
    assert "Not asked yet, or not answered: long.\n" in (tmp_path / "results.md").read_text()
    assert orjson.loads((tmp_path / "results.json").read_bytes())["open"] == ["long"]
    assert f"what was answered is in {tmp_path}" in capsys.readouterr().err


def test_an_interruption_before_the_first_answer_says_that_there_is_none(define, tmp_path, capsys):
    def interrupted(_size, _say):
        raise KeyboardInterrupt

    define("long", interrupted)

    assert command.main(["long", "--out", str(tmp_path)]) == 130
    assert capsys.readouterr().err == "nothing was answered\n"
    assert not list(tmp_path.iterdir())


def test_without_matplotlib_the_report_says_how_to_install_it(define, ask, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    define("made_up", answers(FIGURE, plots=(PLOT,)))

    code, results, said = ask("made_up")

    assert (code, results["plots"]) == (0, [])
    assert "install matplotlib with: pip install -e '.[bench]'" in said


@pytest.mark.long
def test_every_plot_becomes_a_picture(define, ask, tmp_path):
    pytest.importorskip("matplotlib", reason="needs matplotlib, of the extra bench")
    lines = Plot("Growth", "agents", "ms", (Series("a", (1, 10), (1.0, 2.0)), Series("b", (1,), (1.0,))), "lines")
    define("made_up", answers(FIGURE, plots=(PLOT, lines)))

    _, results, said = ask("made_up")

    assert results["plots"] == ["made_up-runs-a-second.png", "made_up-growth.png"]
    assert all((tmp_path / name).read_bytes().startswith(b"\x89PNG") for name in results["plots"])
    assert "![made_up-growth.png](made_up-growth.png)" in said
