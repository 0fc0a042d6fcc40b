from __future__ import annotations

from collections.abc import Callable

import pytest
import ray

from owlclaw_ray.domain.node import ClusterView, NodeCondition
from owlclaw_ray.errors import RuntimeUnavailableError
from serve.cli import drain
from tests.serve.cli.conftest import Run
from tests.serve.double import LOST, MemoryRuntime, node_view


@pytest.fixture
def passing(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Has something happen instead of each pause between two looks."""

    def instead(happens: Callable[[], None]) -> None:
        monkeypatch.setattr(drain.time, "sleep", lambda _: happens())

    return instead


def test_a_node_is_drained_and_waited_for_until_it_holds_no_agent(owlclaw: Run, runtime: MemoryRuntime, passing):
    left = iter([(1, 1), (0, 1), (0, 0)])

    def leave() -> None:
        agents, hosts = next(left)
        runtime.cluster = ClusterView((node_view(agents=agents, running=0, hosts=hosts), node_view("beta", **LOST)))

    passing(leave)
    result = owlclaw("drain", "alpha")

    assert result.exit_code == 0
    assert result.output.splitlines() == [
        "alpha: 5 agents, 1 at work",
        "alpha: 1 agent, 0 at work",
        "alpha: 1 host not ended yet",
        "drained",
    ]
    assert runtime.drained == {"id-of-alpha"}


def test_without_a_name_the_whole_cluster_is_drained_but_for_what_is_lost(owlclaw: Run, runtime: MemoryRuntime):
    runtime.cluster = ClusterView(
        (node_view(agents=0, hosts=0), node_view("gamma", agents=0, hosts=0), node_view("beta", **LOST))
    )

    assert owlclaw("drain").output == "drained\n"
    assert runtime.drained == {"id-of-alpha", "id-of-gamma"}


def test_agents_that_do_not_leave_in_time_are_named_and_the_exit_code_is_1(owlclaw: Run, runtime: MemoryRuntime):
    result = owlclaw("drain", "alpha", "--timeout", "0")

    assert result.exit_code == 1
    assert "not drained within 0 s" in result.output
    assert "alpha: 5 agents" in result.output


def test_a_host_whose_agents_are_not_known_because_it_does_not_answer_does_not_pass_for_empty(
    owlclaw: Run, runtime: MemoryRuntime
):
    runtime.cluster = ClusterView((node_view(agents=0, running=0, hosts=1),))

    result = owlclaw("drain", "alpha", "--timeout", "0")

    assert result.exit_code == 1
    assert "alpha: 1 host not ended yet" in result.output


def test_a_node_that_does_not_answer_does_not_pass_for_drained(owlclaw: Run, runtime: MemoryRuntime):
    runtime.cluster = ClusterView((node_view("gamma", **LOST | {"state": NodeCondition.SILENT}),))

    result = owlclaw("drain", "gamma", "--timeout", "0")

    assert result.exit_code == 1
    assert "gamma: does not answer" in result.output


def test_a_drained_node_is_taken_back(owlclaw: Run, runtime: MemoryRuntime):
    runtime.drained = {"id-of-alpha"}

    result = owlclaw("drain", "alpha", "--undo")

    assert (result.exit_code, result.output) == (0, "alpha runs agents again\n")
    assert not runtime.drained


def test_a_node_that_is_not_there_is_an_error_that_says_how_to_list_them(owlclaw: Run):
    result = owlclaw("drain", "gamma")

    assert result.exit_code == 1
    assert "there is no node 'gamma'" in result.output
    assert "owlclaw doctor --cluster" in result.output


def test_a_machine_without_ray_has_nothing_to_drain(cli: Run, monkeypatch: pytest.MonkeyPatch):
    def init(**options: object) -> None:
        assert options["address"] == "auto"
        raise ConnectionError

    monkeypatch.setattr(ray, "init", init)

    result, undone = cli("drain", "--here"), cli("drain", "--here", "--undo")

    assert (result.exit_code, result.stdout) == (0, "Ray does not run on this machine: there is nothing to drain\n")
    assert (undone.exit_code, undone.stderr) == (1, "Ray does not run on this machine: nothing was undone\n")


def test_this_machine_and_another_one_cannot_both_be_meant(cli: Run):
    assert cli("drain", "alpha", "--here").exit_code == 2


class Machine:
    """This machine's part of a runtime, and another node's, as Ray reaches them. Roots that are not named have nothing."""

    def __init__(self) -> None:
        self.agents = {"own": 0, "other": 0}
        self.nodes = ["own"]
        self.directory = True
        self.marked: list[str] = []

    def named_actor(self, part: str, _namespace: str, node_id: str = "") -> SteeredMachinePart:
        return SteeredMachinePart(self, part, node_id)


class SteeredMachinePart:
    """Answers at once, as `NamedActor.call_now` does."""

    def __init__(self, machine: Machine, part: str, node_id: str) -> None:
        self._machine, self._part, self._node_id = machine, part, node_id

    def call_now(self, question: Callable[[SteeredMachinePart], object]) -> object:
        if self._part == "directory" and not self._machine.directory:
            raise RuntimeUnavailableError("the directory is not there yet")
        return question(self)

    def drain(self, nodes: list[str]) -> None:
        self._machine.marked += nodes

    def to_empty(self, node_id: str) -> list[str]:
        assert node_id == "own"
        return self._machine.nodes

    def agents(self) -> int:
        return self._machine.agents[self._node_id]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(ray, "init", lambda **_: None)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    monkeypatch.setattr("actors.remote.NamedActor", machine.named_actor)
    monkeypatch.setattr("actors.remote.here", lambda: "own")
    monkeypatch.setattr("actors.remote.find", lambda *_: machine)
    return machine


def test_this_machine_is_drained_when_its_root_says_so_however_the_directory_comes_and_goes(
    cli: Run, machine: Machine, passing
):
    machine.agents["own"], machine.directory = 1, False
    moments = iter([(True, 1), (False, 1), (True, 1), (True, 0)])

    def move_on() -> None:
        machine.directory, machine.agents["own"] = next(moments)

    passing(move_on)

    result = cli("drain", "--here")

    assert result.exit_code == 0
    assert machine.marked == ["own"]
    assert result.output.splitlines() == [
        "this machine: not marked yet, for the runtime or its store does not answer",
        "this machine: 1 agent",
        "this machine: does not answer",
        "this machine: 1 agent",
        "drained",
    ]


def test_this_machine_waits_for_the_others_that_the_directory_names(cli: Run, machine: Machine, passing):
    machine.nodes, machine.agents["other"] = ["own", "other"], 2
    passing(lambda: machine.agents.update(other=0))

    assert cli("drain", "--here").output.splitlines() == ["node other: 2 agents", "drained"]


def test_a_machine_without_a_root_has_nothing_to_drain(cli: Run, machine: Machine, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("actors.remote.find", lambda *_: None)

    result = cli("drain", "--here")

    assert (result.exit_code, machine.marked) == (0, [])
    assert result.stdout == "no runtime is on this machine: there is nothing to drain\n"
