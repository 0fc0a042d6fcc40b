import pytest

from benchmarks import growth
from benchmarks.growth import (
    AMOUNTS,
    Case,
    Measured,
    ToolRate,
    axis_figures,
    by_axis,
    cases,
    cost_of,
    idle_figures,
    plot_of,
    skill_files,
)
from benchmarks.load import LoadResult
from benchmarks.question import Size
from benchmarks.wave import WaveError
from owlclaw_ray.definitions.skills.loader import load_skills
from owlclaw_ray.domain.agent import Limits
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.runs.skill_selection import select_skills

AMOUNT = AMOUNTS[Size.SMOKE]


@pytest.fixture
def skills(tmp_path):
    def load(count):
        for path, text in skill_files("bench", count).items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        found, warnings = load_skills(tmp_path / "agents" / "bench" / "capabilities", "capabilities")
        assert not warnings
        return found

    return load


@pytest.mark.parametrize("count", [1, 50])
def test_the_prompt_has_the_same_skill_whether_there_are_few_or_many(skills, count):
    found = skills(count)

    chosen = select_skills(found, Trigger(TriggerKind.API, {"price": 7}, "prices"), Limits().skill_tokens)

    assert len(found) == count
    assert [skill.name for skill in chosen] == ["skill-0"]


def test_triggers_keep_to_the_pace(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(growth.time, "monotonic", lambda: now[0])
    pace = ToolRate(40.0, started=100.0)

    assert not pace(LoadResult())
    now[0] = 100.1
    assert pace(LoadResult(accepted=3))
    assert not pace(LoadResult(accepted=4))
    assert not pace(LoadResult(accepted=3, refused=1))


def test_cases_go_from_the_least_to_the_most_along_each_axis():
    assert [(case.axis, case.amount) for case in cases(AMOUNTS[Size.FULL])] == [
        ("agents", 1),
        ("agents", 100),
        ("agents", 10_000),
        ("skills", 1),
        ("skills", 50),
        ("past runs", 0),
        ("past runs", 100_000),
    ]


def test_a_cost_is_compared_with_the_least_of_what_fewer_cost():
    figures = axis_figures("agents", {1: Measured([9.0, 9.2]), 100: Measured([5.0, 5.2]), 10_000: Measured([5.8, 5.8])})

    assert [each.met for each in figures] == [None, True, True]
    assert [each.baseline for each in figures] == [None, pytest.approx(9.1), pytest.approx(5.1)]
    assert figures[2].baseline_is == "100 agents"


def test_a_cost_that_differs_by_more_than_the_medians_vary_is_not_flat_however_noisy_the_rounds():
    (_, grown) = axis_figures("skills", {1: Measured([4.0, 6.0, 5.0]), 50: Measured([6.0, 5.8, 3.0])})

    assert grown.met is False


def test_every_second_round_goes_backwards(monkeypatch):
    asked = []
    monkeypatch.setattr(growth, "idle_cores", lambda systems: dict.fromkeys(systems, 0.0))
    monkeypatch.setattr(growth, "cost_of", lambda system, *_: asked.append(system) or 1.0)
    compared = [Case("agents", number, str(number), iter(())) for number in range(3)]

    found, _ = growth.measure({"0": "a", "1": "b", "2": "c"}, compared, AMOUNT, print)

    assert asked == [*"cba", *"abc", *"cba"]
    assert [(case.amount, each.rounds) for case, each in found] == [(0, [1.0, 1.0]), (1, [1.0, 1.0]), (2, [1.0, 1.0])]


def test_axes_keep_their_cases_in_order():
    measured = [(case, Measured([float(case.amount)])) for case in cases(AMOUNT)]

    axes = by_axis(measured)

    assert list(axes) == ["agents", "skills", "past runs"]
    assert plot_of("skills", axes["skills"]).series[0].x == ("1", "50")


def test_the_cost_of_a_run_is_without_what_the_idle_system_uses(monkeypatch):
    now, cpu = [0.0], iter([1.0, 3.0])
    monkeypatch.setattr(growth.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(growth, "StoreReader", lambda store: store)
    monkeypatch.setattr(growth, "wait_until_done", lambda *_, **__: now.__setitem__(0, 10.0))
    monkeypatch.setattr(growth, "check_completed", lambda _: None)

    async def post_for(_url, _paths, **_options):
        return LoadResult(accepted=100)

    monkeypatch.setattr(growth, "post_for", post_for)

    class System:
        url = store = ""

        def cpu_seconds(self):
            return next(cpu)

    assert cost_of(System(), iter(()), idle=0.1, seconds=5.0, say=print) == pytest.approx(10.0)


def test_a_round_in_which_a_trigger_is_refused_is_no_measurement(monkeypatch):
    monkeypatch.setattr(growth, "StoreReader", lambda store: store)
    monkeypatch.setattr(growth, "wait_until_done", lambda *_, **__: 0)
    monkeypatch.setattr(growth, "check_completed", lambda _: None)

    async def post_for(_url, _paths, **_options):
        return LoadResult(accepted=99, refused=1)

    monkeypatch.setattr(growth, "post_for", post_for)

    class System:
        url = store = ""

        def cpu_seconds(self):
            return 0.0

    with pytest.raises(WaveError, match="1 refused"):
        cost_of(System(), iter(()), idle=0.1, seconds=5.0, say=print)


def test_idle_systems_are_compared_with_the_small_one():
    idle = {"small": Measured([0.10]), "crowded": Measured([0.15]), "old": Measured([0.10])}

    crowded, old = idle_figures(idle, AMOUNT)

    assert (crowded.name, crowded.ratio) == ("idle_cpu, 300 resident agents", 1.5)
    assert old.ratio == 1.0


def test_a_case_is_asked_of_a_system_that_has_its_agents():
    systems = {"small": {"bench", "past", "one", "fifty"}, "crowded": {"bench"}, "old": {"past"}}

    for case in cases(AMOUNT):
        assert isinstance(case, Case)
        assert next(case.paths).split("/")[3].partition(":")[0] in systems[case.system]
