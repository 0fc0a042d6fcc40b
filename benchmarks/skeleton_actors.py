"""The skeleton's processes; see `benchmarks.skeleton`."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import orjson
import ray
from fastapi import FastAPI
from ray import serve as ray_serve
from starlette.requests import Request
from starlette.responses import Response

from serve.loopback import keep_replica_on_loopback

_LINGER = 0.002
_QUESTION = {"role": "user", "content": "What is to be done about this price? " * 12}
_REPLY = {"text": "", "tool_calls": [{"name": "log_decision", "arguments": '{"reasoning": "the price is fair"}'}]}
_LONG = {"num_cpus": 0, "max_concurrency": 10_000}


class Outbox:
    """Sends all that is there in one call, and the rest in the next when that one has returned."""

    def __init__(self, send: Callable[[Sequence[Any]], Awaitable[Sequence[Any]]]) -> None:
        self._send, self._items, self._answers = send, list[Any](), list[asyncio.Future[Any]]()
        self._postman: asyncio.Task[None] | None = None

    def __call__(self, item: Any) -> asyncio.Future[Any]:
        """Return the future answer to this item."""
        answer = asyncio.get_running_loop().create_future()
        self._items.append(item)
        self._answers.append(answer)
        if self._postman is None:
            self._postman = asyncio.create_task(self._deliver())
        return answer

    async def _deliver(self) -> None:
        while self._items:
            items, answers, self._items, self._answers = self._items, self._answers, [], []
            for answer, result in zip(answers, await self._send(items), strict=True):
                answer.set_result(result)
        self._postman = None


class Journal:
    """SQLite behind a group commit; a row is on the disk when its call returns."""

    def __init__(self, path: str) -> None:
        self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        for statement in (
            "PRAGMA journal_mode = WAL",
            "PRAGMA synchronous = FULL",
            "CREATE TABLE journal (run TEXT, kind TEXT, entry TEXT)",
        ):
            self._database.execute(statement)
        self._rows: list[tuple[str, str, str]] = []
        self._commit: asyncio.Future[None] | None = None

    async def append(self, rows: Sequence[tuple[str, str, str]]) -> list[None]:
        """Return when the rows are committed."""
        self._rows += rows
        if self._commit is None:
            loop = asyncio.get_running_loop()
            self._commit = loop.create_future()
            loop.call_later(_LINGER, self._write)
        await asyncio.shield(self._commit)
        return [None] * len(rows)

    def _write(self) -> None:
        assert self._commit is not None
        done, rows, self._commit, self._rows = self._commit, self._rows, None, []
        self._database.execute("BEGIN")
        self._database.executemany("INSERT INTO journal VALUES (?, ?, ?)", rows)
        self._database.execute("COMMIT")
        done.set_result(None)


class Model:
    """Replies at once, and always the same."""

    async def complete(self, questions: Sequence[Any]) -> list[Any]:
        """Return a reply for each."""
        return [_REPLY] * len(questions)


@ray.remote(num_cpus=0, resources={"tool_slots": 1}, max_retries=0)
def run_tools(calls: Sequence[Any]) -> list[Any]:
    """Return a result for each call."""
    return [{"logged": True, "decision_id": "decision_0"}] * len(calls)


class Host:
    """Runs the agents that are its own, each one run at a time."""

    def __init__(self, journal: Any, model: Any) -> None:
        async def tools(calls: Sequence[Any]) -> Any:
            return await run_tools.remote(calls)

        self._append, self._ask = Outbox(journal.append.remote), Outbox(model.complete.remote)
        self._tools = Outbox(tools)
        self._turns: dict[str, asyncio.Lock] = {}
        self._running: set[asyncio.Task[None]] = set()

    async def wake(self, runs: Sequence[tuple[str, str]]) -> list[None]:
        """Begin the runs (agent, run), and return without waiting for them."""
        for agent, run in runs:
            task = asyncio.create_task(self._run(self._turns.setdefault(agent, asyncio.Lock()), run))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        return [None] * len(runs)

    async def _run(self, turn: asyncio.Lock, run: str) -> None:
        async with turn:
            reply = await self._ask([_QUESTION])
            await self._append((run, "reply", orjson.dumps(reply).decode()))
            results = await self._tools(reply["tool_calls"][0])
            await self._ask([_QUESTION, reply, results])
            await self._append((run, "outcome", orjson.dumps({"result": results, "text": "done"}).decode()))


class Owner:
    """The detached parent of all actors, so that their tasks share warm workers."""

    def __init__(self, path: str, hosts: int) -> None:
        self._journal, model = _actor(Journal, path), _actor(Model)
        self._hosts = [_actor(Host, self._journal, model) for _ in range(hosts)]

    async def children(self) -> tuple[Any, list[Any]]:
        """Return the journal and the hosts."""
        return self._journal, self._hosts


def start(path: str, hosts: int, cores: int) -> Any:
    """Make the actors, have a tool worker a core ready, and return the Serve application."""
    owner: Any = ray.remote(Owner).options(name="owner", lifetime="detached", **_LONG).remote(path, hosts)
    journal, children = ray.get(owner.children.remote())
    ray.get([journal.append.remote([("", "reply", "")]), *(child.wake.remote([]) for child in children)])
    ray.get([run_tools.remote([]) for _ in range(cores)])

    def api() -> FastAPI:
        keep_replica_on_loopback()
        return _api(journal, children)

    deployment = ray_serve.deployment(num_replicas=1, max_ongoing_requests=2_000, ray_actor_options={"num_cpus": 0})
    return deployment(ray_serve.ingress(api)()).bind()


def _actor(kind: type[Any], *arguments: Any) -> Any:
    return ray.remote(kind).options(**_LONG).remote(*arguments)


def _api(journal: Any, hosts: Sequence[Any]) -> FastAPI:
    append, wakes = Outbox(journal.append.remote), [Outbox(host.wake.remote) for host in hosts]
    numbers = itertools.count()

    async def trigger(request: Request) -> Response:
        agent, run = request.path_params["agent"], f"run_{next(numbers)}"
        payload = orjson.loads(await request.body())
        await append((run, "trigger", orjson.dumps(payload).decode()))
        await wakes[hash(agent) % len(wakes)]((agent, run))
        return Response(orjson.dumps({"run_id": run, "agent": agent}), 202, media_type="application/json")

    app = FastAPI()
    app.add_route("/v1/agents/{agent}/triggers", trigger, methods=["POST"])
    return app
