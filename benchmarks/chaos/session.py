"""One session: start the system, submit and kill, wait for quiet, stop it. What happened stays in a folder to be checked."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx

from benchmarks.chaos.client import Client
from benchmarks.chaos.clusters import Clusters
from benchmarks.chaos.installation import Installation
from benchmarks.chaos.killer import Killer
from benchmarks.chaos.machines import HUB, Machines, lay_networks
from benchmarks.chaos.strikes import SHARES, Role, schedule
from benchmarks.chaos.workload import USUAL, Shape, orders
from benchmarks.question import Say
from owlclaw_ray.testing.postgres import LOOPBACK, PostgresServer, find_binaries

ANSWERS, BLOWS, FACTS = "answers.jsonl", "blows.jsonl", "session.json"
_POLL_SECONDS = 0.5
_LONG_RUN_SECONDS = 3_600.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What a session does."""

    seed: int
    runs: int
    kills: int
    pace: float = 4.0
    """Seconds between two strikes, about: it sets the rate of the triggers."""
    quiet_seconds: float = 300.0
    """How long, at most, to wait for the end of all runs after the last trigger."""
    roles: tuple[Role, ...] = tuple(SHARES)
    postgres: bool = False
    clusters: int = 1
    """How many share the database."""
    nodes: int = 1
    """How many machines the cluster has; with several the session is to run in a hub, see `machines`."""
    shape: Shape = USUAL
    ahead: int = 0
    """So many triggers are submitted at once, to begin with; strikes come behind them."""

    @property
    def rate(self) -> float:
        """Triggers a second."""
        return (self.runs - self.ahead) / max(self.kills * self.pace, 1.0)

    @property
    def limits(self) -> Mapping[str, float]:
        """What the settings say under `limits`: runs with long calls, which each takeover repeats, have more time than usual."""
        return {"run_timeout": _LONG_RUN_SECONDS} if self.shape.longest else {}


@contextmanager
def carried_out(plan: Plan, folder: Path, say: Say) -> Iterator[str]:
    """Run the session in this new folder; inside the block the system is stopped and its store, of this URL, can be read."""
    with ExitStack() as stack:
        installation = _installation(plan, folder)
        store_url = Installation(folder).sqlite_url
        if plan.nodes > 1:
            lay_networks()
        if plan.postgres:
            store_url = stack.enter_context(_postgres(folder / "postgres", HUB if plan.nodes > 1 else LOOPBACK)).url()
        installation.write(store_url=store_url, limits=plan.limits)
        asyncio.run(_suffer(plan, installation, say))
        yield store_url


def _installation(plan: Plan, folder: Path) -> Installation | Clusters:
    if plan.nodes > 1:
        return Machines(folder, plan.nodes)
    return Clusters(folder, plan.clusters) if plan.clusters > 1 else Installation(folder)


def _postgres(folder: Path, address: str) -> PostgresServer:
    binaries = find_binaries()
    if binaries is None:
        raise RuntimeError("there are no PostgreSQL server binaries; Debian: apt-get install postgresql")
    return PostgresServer(folder, binaries, address)


async def _suffer(plan: Plan, installation: Installation | Clusters, say: Say) -> None:
    client = Client(
        installation.urls,
        orders(plan.seed, plan.runs, plan.shape),
        rate=plan.rate,
        answers=installation.folder / ANSWERS,
        ahead=plan.ahead,
    )
    killer = Killer(installation, client, blows=installation.folder / BLOWS, say=say)
    strikes = schedule(plan.seed, plan.runs, plan.kills, plan.roles, plan.ahead)
    try:
        installation.start()
        if not await installation.ready():
            raise RuntimeError(f"the runtime was not ready in time; see the logs in {installation.folder}")
        say(f"up; {plan.runs} triggers at {plan.rate:.1f} a second, {plan.kills} strikes")
        started = time.monotonic()
        async with asyncio.TaskGroup() as group:
            group.create_task(client.run())
            group.create_task(killer.run(strikes, plan.runs))
        submitted = time.monotonic()
        say(f"all triggers accepted after {submitted - started:.0f} s; waiting for the runs to end")
        quiet = await _quiet(installation, plan)
        say("quiet" if quiet else f"not quiet after {plan.quiet_seconds:g} s")
        quiet_at = time.monotonic()
        problems = [*killer.problems, await installation.stop()]
    finally:
        await installation.kill()
    facts = {
        "plan": {
            **asdict(plan),
            "roles": [role.value for role in plan.roles],
            "shape": {**asdict(plan.shape), "left_out": sorted(plan.shape.left_out)},
        },
        "seconds_submitting": round(submitted - started, 1),
        "seconds_until_quiet": round(quiet_at - submitted, 1),
        "quiet": quiet,
        "stop_problem": "; ".join(filter(None, problems)),
        "client_retries": dict(client.troubles),
    }
    (installation.folder / FACTS).write_text(json.dumps(facts, indent=2))


async def _quiet(installation: Installation | Clusters, plan: Plan) -> bool:
    """Return whether no run is left, and no schedule that would make one, within the plan's limit."""
    end = time.monotonic() + plan.quiet_seconds
    agents = {order.agent for order in orders(plan.seed, plan.runs, plan.shape)}
    async with httpx.AsyncClient(base_url=installation.urls[0], timeout=30, trust_env=False) as http:
        while time.monotonic() < end:
            try:
                if not await _any_run(http) and not await _any_schedule(http, agents) and not await _any_run(http):
                    return True
            except httpx.HTTPError:
                pass
            await asyncio.sleep(_POLL_SECONDS)
    return False


async def _any_run(http: httpx.AsyncClient) -> bool:
    for status in ("queued", "running"):
        page = await http.get("/v1/runs", params={"status": status, "limit": 1})
        if page.raise_for_status().json()["runs"]:
            return True
    return False


async def _any_schedule(http: httpx.AsyncClient, agents: Iterable[str]) -> bool:
    for agent in agents:
        page = await http.get(f"/v1/agents/{agent}/schedules?status=active")
        if any(each["status"] == "active" for each in page.raise_for_status().json()["schedules"]):
            return True
    return False
