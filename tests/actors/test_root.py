"""What a root tells the parts that it makes, without Ray."""

import asyncio
import pickle
from functools import partial
from itertools import count

import pytest
from msgspec.structs import replace

from actors.agent import AgentActor
from actors.plan import ToolSlots
from actors.remote import DIRECTORY, GATEWAY, KEEPER, PARTS, SCHEDULER
from actors.root import RootActor
from owlclaw_ray.configuration.own_variables import STORE_URL_VARIABLE, TOKEN_VARIABLE
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.tool import ToolClass
from owlclaw_ray.errors import RuntimeUnavailableError
from owlclaw_ray.kernel.packing import pack
from owlclaw_ray.placement.lease import GIVE_UP_SECONDS, SupersededError
from owlclaw_ray.placement.node_fence import NodeCutError
from owlclaw_ray.settings import load_settings
from owlclaw_ray.testing.clock import ManualClock
from serve.runtime_plan import entrusted_of, hatchet_plan, plan_of
from tests.actors.plans import plan_in
from tests.hatchet_engine.engine import token_for

TOKEN = token_for("https://hatchet.example.org", "engine.example.org:7077")


@pytest.fixture
def told(monkeypatch, tmp_path):
    """What actors were made with, by the names of their classes."""
    told = {}
    monkeypatch.setattr("actors.root.make", lambda kind, *arguments, **_: told.setdefault(kind.__name__, arguments))
    monkeypatch.setattr("actors.root.find", lambda *_: None)
    monkeypatch.setattr("actors.root.full_name", lambda name: name)
    monkeypatch.setattr("actors.root.configure", lambda _: None)
    monkeypatch.setattr("actors.root.restarted", lambda: True)
    monkeypatch.setattr("actors.root.own_resources", lambda: {"CPU": 32.0, "tool_slots": 64.0, "quick_slots": 32.0})
    monkeypatch.setattr("actors.root.socket_path", lambda _: tmp_path / "slots")
    monkeypatch.setattr("actors.liveness.here", lambda: "node_1")
    return told


@pytest.mark.parametrize(
    ("variable", "value", "secret"),
    [
        (TOKEN_VARIABLE, TOKEN, TOKEN),
        (STORE_URL_VARIABLE, "postgresql://owl:swordfish%2F4711@db:5433/owl?sslmode=require", "swordfish"),
        (STORE_URL_VARIABLE, "postgresql:///owl?host=db&user=owl&password=swordfish", "swordfish"),
        (STORE_URL_VARIABLE, "postgresql://owl:sword@fish@db/owl", "fish"),
    ],
)
async def test_no_actor_is_told_a_secret_of_the_runtime_when_it_is_made(told, tmp_path, variable, value, secret):
    (tmp_path / "agents").mkdir()
    settings = load_settings(tmp_path, {variable: value})
    assert secret in repr((entrusted_of(settings, ""), settings.store_url))

    root = RootActor(plan_of(settings), (), hatchet_plan(settings))
    await root.retire()

    assert told.keys() > {"AgentActor", "KeeperActor", "ModelGatewayActor"}
    assert [name for name, arguments in told.items() if secret.encode() in pickle.dumps(arguments)] == []
    assert secret not in repr((root._plan, root._hatchet))


async def test_a_host_shares_out_the_slots_that_its_own_node_offers(told, tmp_path):
    plan = replace(plan_in(tmp_path), slots=ToolSlots(alone=4, quick=2, memory=2, state=2))

    root = RootActor(plan, ())
    await root.retire()

    _, of_hosts, _ = told["AgentActor"]
    assert of_hosts.slots == ToolSlots(alone=64, quick=32, memory=2, state=2)
    assert told["KeeperActor"][0] == plan


async def test_a_root_that_was_restarted_neither_makes_the_parts_that_are_there_nor_imports_their_classes(
    told, monkeypatch, tmp_path
):
    there = {name: object() for name in PARTS}
    monkeypatch.setattr("actors.root.find", lambda name, _: there[name])
    monkeypatch.setattr("actors.root.class_of", lambda name: pytest.fail(f"the class of the {name} is imported"))

    root = RootActor(plan_in(tmp_path), ())
    await root.retire()

    assert told.keys() == {"AgentActor"}
    assert root._parts | root._shared.actors == {name: there[name] for name in (KEEPER, GATEWAY, DIRECTORY, SCHEDULER)}


@pytest.mark.parametrize(
    ("cores", "offered", "made"),
    [(1, {"CPU": 32.0}, 1), (2, {"CPU": 32.0}, 2), (64, {"CPU": 32.0}, 2), (64, {"CPU": 1.0}, 1), (64, {}, 1)],
)
async def test_a_root_that_was_restarted_makes_hosts_before_anybody_asks_but_not_more_than_it_has_cores(
    root_again, monkeypatch, cores, offered, made
):
    monkeypatch.setattr("actors.root.os.cpu_count", lambda: cores)
    monkeypatch.setattr("actors.root.own_resources", lambda: offered)
    root = root_again()

    assert len(root.made) == made
    assert [(await root.spawn_host(0))[0] for _ in range(3)][:made] == root.made[:made]
    assert len(root.made) == 3


async def test_a_host_that_nobody_asks_for_behind_a_dead_root_ends(root_again):
    root = root_again()
    await root._recover()
    claimed, _ = await root.spawn_host(0)

    await root._clock.advance(29)
    assert root._liveness.living == {*root.made}
    await root._clock.advance(2)

    assert root._liveness.living == {claimed}
    later, _ = await root.spawn_host(0)
    assert [claimed, later] == [root.made[0], root.made[2]]


async def test_a_root_that_is_retired_ends_no_host_any_more(root_again):
    root = root_again()
    await root._recover()
    await root.retire()

    await root._clock.advance(60)

    assert root._liveness.living == {*root.made}


async def test_in_the_place_of_a_host_made_ahead_that_died_the_caller_gets_the_next_one(root_again):
    root = root_again()
    first, second = root.made
    root._liveness.stillborn = {first}

    host_id, _ = await root.spawn_host(0)

    assert host_id == second
    assert root._liveness.living == {second}
    assert root.made == [first, second]


async def test_a_node_that_is_cut_while_a_host_made_ahead_is_born_makes_no_other_in_its_place(root_again, monkeypatch):
    root, checks = root_again(), count()

    def check():
        if next(checks):
            raise NodeCutError

    monkeypatch.setattr(root._fence, "check", check)

    with pytest.raises(NodeCutError):
        await root.spawn_host(0)

    assert len(root.made) == 2


async def test_hosts_that_never_answer_are_waited_for_together_before_a_restarted_root_goes_on(root_again):
    root = root_again()
    root._liveness.grown = partial(root._clock.sleep, 60)

    recovering = asyncio.create_task(root._recover())
    await root._clock.advance(61)

    assert recovering.done()


async def test_hosts_made_ahead_end_with_the_others_of_a_node_that_is_cut(root_again):
    root = root_again()
    await root._recover()
    await root.spawn_host(0)

    await root.end_hosts()

    assert root._liveness.living == set()


async def test_a_question_to_a_memory_waits_for_a_slot_of_the_node_as_calls_of_tools_do(told, monkeypatch, tmp_path):
    class Task:
        ends: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def remote(self, _):
            return self.ends

    monkeypatch.setattr("actors.tool_task._USE_MEMORY", Task())
    monkeypatch.setattr("actors.root.SystemClock", ManualClock)
    root = RootActor(replace(plan_in(tmp_path), slots=ToolSlots(alone=4, memory=4)), ())
    agent = AgentRef.parse("watch")

    asked = [asyncio.create_task(root.use_memory(agent, "recall", ("pump", 5), 30.0)) for _ in range(3)]
    await root._clock.settle()
    held, waiting = root._desk.held(ToolClass.MEMORY), root._desk.waiting(ToolClass.MEMORY)
    Task.ends.set_result(pack("found"))

    assert (held, waiting) == (2, 1)  # one agent has half of the slots
    assert await asyncio.gather(*asked) == ["found"] * 3
    await root.retire()


def test_a_plan_says_where_a_database_is(tmp_path):
    found = plan_of(
        load_settings(tmp_path, {STORE_URL_VARIABLE: "postgresql://owl:swordfish@db:5433/owl?sslmode=require"})
    )

    assert found.store_url == "postgresql+asyncpg://db:5433/owl"


class Keeper:
    """Says how old the row of the node is; asked as NamedActor asks."""

    def __init__(self, *_):
        self.call, self.age = self, lambda: 0.0

    async def unrenewed(self):
        return self.age()


class Births:
    """Hosts by their names, which come to life at once unless `grown` has something to happen before."""

    def __init__(self, _clock):
        self.living, self.grown, self.stillborn = set(), None, set()

    async def wait_until_alive(self, host_id, _actor, _seconds):
        if host_id in self.stillborn:
            raise RuntimeUnavailableError(f"{host_id} is dead")
        self.living.add(host_id)
        if self.grown is not None:
            await self.grown()

    def end_now(self, host_id):
        self.living.discard(host_id)

    async def end(self, host_id, _actor):
        self.living.discard(host_id)


@pytest.fixture
def steered(told, monkeypatch):
    """What a root needs around it, so that its time passes as its `_clock` is advanced."""
    for name, there in {"NamedActor": Keeper, "LivenessMonitor": Births, "SystemClock": ManualClock}.items():
        monkeypatch.setattr(f"actors.root.{name}", there)
    monkeypatch.setattr("actors.root.kill", lambda _actor: None)


@pytest.fixture
async def root_again(steered, monkeypatch, tmp_path):
    """Makes a root that lived before; `made` has the hosts that it makes."""
    roots = []
    monkeypatch.setattr("actors.root.warm_workers", never)

    def make_host(kind, *arguments, **_):
        if kind is AgentActor:
            made.append(arguments[0])
        return object()

    made = []
    monkeypatch.setattr("actors.root.make", make_host)

    def again():
        root = RootActor(plan_in(tmp_path), ())
        root.made = made
        roots.append(root)
        return root

    yield again
    for each in roots:
        await each.retire()


@pytest.fixture
async def root(steered, monkeypatch, tmp_path):
    """The root of a node with a row in the store, whose time passes as `root._clock` is advanced."""
    monkeypatch.setattr("actors.root.restarted", lambda: False)
    monkeypatch.setattr("actors.shared_parts.here", lambda: "node_1")
    monkeypatch.setattr("actors.shared_parts.registered", never)
    root = RootActor(replace(plan_in(tmp_path), store_url="postgresql://x"), ())
    yield root
    await root.retire()


async def never(*_):
    """Ray does not answer."""
    await asyncio.Event().wait()


def keeper_of(root):
    return root._fence.row._ask.__self__


async def cut(root):
    """Have the node not reach the store for as long as it takes to give up."""
    since = root._clock.monotonic()
    keeper_of(root).age = lambda: root._clock.monotonic() - since
    await root._clock.advance(GIVE_UP_SECONDS)


async def test_the_hosts_of_a_node_whose_row_cannot_be_renewed_are_ended_and_it_gets_none_until_it_can(root):
    await root._clock.advance(1)
    host_id, _ = await root.spawn_host(0)
    assert [known for known, _ in await root.hosts()] == [host_id]

    await cut(root)

    assert not root._liveness.living
    for question in (root.hosts, root.spawn_host):
        with pytest.raises(NodeCutError):
            await question(0)

    keeper_of(root).age = lambda: 0.0
    await root._clock.advance(1)
    assert not await root.hosts()
    await root.spawn_host(0)


async def test_a_host_that_comes_to_life_when_its_node_was_cut_meanwhile_is_ended(root):
    await root._clock.advance(1)
    root._liveness.grown = partial(cut, root)

    with pytest.raises(NodeCutError):
        await root.spawn_host(0)

    assert not root._liveness.living


async def test_an_order_of_a_superseded_directory_that_a_cut_line_held_up_is_not_carried_out(root):
    await root._clock.advance(1)
    host_id, _ = await root.spawn_host(1)
    await root.hosts(2)  # its successor has come

    for order in (partial(root.end_host, host_id), root.hosts, root.spawn_host):
        with pytest.raises(SupersededError, match="term 1 was superseded: one of term 2"):
            await order(1)

    assert root._liveness.living == {host_id}
    await root.end_host(host_id, 2)
    assert not root._liveness.living


async def test_who_holds_no_lease_asks_a_root_as_ever(root):
    await root._clock.advance(1)
    await root.hosts(2)

    host_id, _ = await root.spawn_host(0)

    assert [known for known, _ in await root.hosts()] == [host_id]
