"""What a provider is asked for vectors counts against budgets: whole runs, real litellm, a local server of OpenAI's form."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from owlclaw_ray import OwlClaw
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.budget import NANO, Budget, BudgetScope, BudgetUnit, minute_of
from owlclaw_ray.domain.embedding import EmbeddingPurpose, EmbeddingReply, EmbeddingRequest
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.ledger import LedgerKind
from owlclaw_ray.domain.principal import LOCAL
from owlclaw_ray.domain.quota import Quotas
from owlclaw_ray.domain.run import RunStatus, Usage
from owlclaw_ray.domain.trigger import Admission, Trigger, TriggerKind
from owlclaw_ray.errors import BudgetExhaustedError
from owlclaw_ray.ids import DEFAULT_TENANT, ReservationId, RunId, TenantId
from owlclaw_ray.memory.embedders import FixedEmbedder
from owlclaw_ray.memory.embedding import EmbeddingWait
from owlclaw_ray.models.embedding_account import EmbeddingAccount, on_account
from owlclaw_ray.models.litellm_client import LiteLLMClient
from owlclaw_ray.policy.embeddings import BudgetedEmbeddings
from owlclaw_ray.store.commands import BudgetClaim, PutKey, ReserveBudget
from owlclaw_ray.store.queries import JournalOfRun, LedgerFilter
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.testing.ids import SequentialIds
from owlclaw_ray.testing.in_process import in_process_runtime
from owlclaw_ray.testing.openai_server import CannedFailure, OpenAIServer, Vectors
from tests.contracts.store_access_contract import KEY
from tests.worlds import Model, asks, says

MONDAY = datetime(2026, 11, 23, 23, 59, 55, tzinfo=UTC)
CENT = NANO // 100
FRIDAYS = "the disk fills on Fridays"
HOUSE = "house.money.@default"
SECONDS = 20


@pytest.fixture
def server(monkeypatch):
    """Takes a cent for a text, at the price of text-embedding-3-small."""
    with OpenAIServer(lambda request: Vectors([[1.0, 2.0]] * len(request.body["input"]), 500_000)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        yield server


class Client(LiteLLMClient):
    """Sends what it is asked when a test lets it."""

    def __init__(self):
        super().__init__()
        self.asked, self.open = asyncio.Semaphore(0), asyncio.Event()
        self.owners = []
        self.open.set()

    async def embed(self, request):
        self.asked.release()
        self.owners.append((request.tenant, request.agent_id))
        await self.open.wait()
        return await super().embed(request)


@pytest.fixture
async def trial(agents, tmp_path, server):
    """Starts runtimes whose agents have these budgets, and whose model answers as `decide` says."""
    client, clock = Client(), ManualClock(MONDAY)

    def start(decide, *budgets, named=("watch",), **options):
        for name in named:
            agents.define(name, governance={"budgets": list(budgets)})
        return in_process_runtime(
            agents_dir=agents.folder,
            data_dir=tmp_path / "data",
            models=[Model(decide)],
            clock=clock,
            embedder="litellm:openai/text-embedding-3-small",
            embedding=client,
            **options,
        )

    async def know(*named):
        """Have these agents remember something, with its vector."""
        async with start(one_by_one(), named=named) as runtime:
            for name in named:
                await runtime.memory.remember(AgentRef.parse(name), FRIDAYS)
            await asyncio.to_thread(runtime.indexed_memory.settle)
        assert asked(server) == [["dimension"], *([[FRIDAYS]] * len(named))]
        server.requests.clear()
        client.asked = asyncio.Semaphore(0)

    yield SimpleNamespace(start=start, know=know, client=client, clock=clock)
    await client.close()


def house(limit, **options):
    return {"name": "house", "unit": "money", "limit": limit, "scope": "tenant", "reserve": 0.01, **options}


def one_by_one(*replies):
    answers = iter(replies)
    return lambda _: next(answers)


def recalls(*questions):
    ids = tuple(f"c_{question}" for question in questions)
    return asks(*(("recall", f'{{"query":"{question}"}}') for question in questions), ids=ids)


def asked(server):
    return [request.body["input"] for request in server.requests]


async def use(runtime, account):
    """Return what is used and what is reserved of an account."""
    claim = BudgetClaim(account, 2**62, 0)
    (answer,) = await runtime.store.apply(
        [ReserveBudget(ReservationId("look"), RunId(""), AgentRef.parse("nobody"), None, (claim,), MONDAY)]
    )
    return answer.uses[0].used, answer.uses[0].reserved


async def results(runtime, run, tool="recall"):
    journal = await runtime.store.read(JournalOfRun(DEFAULT_TENANT, run.run_id))
    return [
        each.data["content"] for each in journal if each.kind is EntryKind.TOOL_FINISHED and each.data["tool"] == tool
    ]


async def warnings(runtime):
    page = await runtime.store.read(LedgerFilter(DEFAULT_TENANT, kind=LedgerKind.WARNING, limit=100))
    return [(each.record.data["what"], each.record.data["why"]) for each in page]


async def test_a_question_is_reserved_for_while_it_is_asked_and_charged_when_it_was(trial):
    await trial.know("watch")
    trial.client.open.clear()
    async with trial.start(one_by_one(recalls("when"), says("on Fridays")), house(1)) as runtime:
        running = asyncio.create_task(runtime.trigger("watch"))
        await trial.client.asked.acquire()
        during = await use(runtime, HOUSE)
        trial.client.open.set()
        run = await running
        after = await use(runtime, HOUSE)

    assert (during, after) == ((0, CENT), (CENT, 0))
    assert run.status is RunStatus.COMPLETED
    assert run.result.usage.cost == pytest.approx(0.01)


async def test_a_question_that_gets_no_vector_is_not_charged(trial, server):
    await trial.know("watch")
    server.enqueue(CannedFailure(401))
    async with trial.start(one_by_one(recalls("when"), says("on Fridays")), house(1)) as runtime:
        await runtime.trigger("watch")

        assert await use(runtime, HOUSE) == (0, 0)
    assert asked(server) == [["when"]]


async def test_a_run_whose_recall_a_budget_refuses_goes_on_by_words(trial, server):
    app = OwlClaw("shop")
    reached, go = [threading.Event() for _ in range(2)], [threading.Event() for _ in range(2)]

    @app.handler("hold")
    def hold(number: int) -> str:
        """Hold the run until the test lets it go on."""
        reached[number].set()
        return str(go[number].wait(SECONDS))

    answering, answer = asyncio.Event(), asyncio.Event()
    replies = one_by_one(
        asks(("shop__hold", '{"number":0}'), ("recall", '{"query":"disk"}'), ("shop__hold", '{"number":1}')),
        says("on Fridays"),
    )

    async def late():
        answering.set()
        await answer.wait()
        return says("done")

    def decide(request):
        return late() if request.agent_id == "busy" else replies(request)

    await trial.know("watch")
    tokens = {"name": "house", "unit": "tokens", "limit": 9_000_000, "scope": "tenant", "reserve": 8_999_999}
    async with trial.start(decide, tokens, named=("watch", "busy"), app=app) as runtime:
        running = asyncio.create_task(runtime.trigger("watch"))
        assert await asyncio.to_thread(reached[0].wait, SECONDS)
        other = asyncio.create_task(runtime.trigger("busy"))
        await answering.wait()
        go[0].set()
        assert await asyncio.to_thread(reached[1].wait, SECONDS)
        answer.set()
        await other
        go[1].set()
        run = await running
        [found] = await results(runtime, run)
        told = dict(await warnings(runtime))

    assert asked(server) == []
    assert (run.status, run.result.final_text) == (RunStatus.COMPLETED, "on Fridays")
    assert [each["content"] for each in found["memories"]] == [FRIDAYS]
    assert found["degraded"]
    assert "the budget house (9,000,000 tokens for the tenant) is spent" in told["recall without its index"]


async def test_a_spent_budget_of_the_tenant_means_no_further_call(trial, server):
    await trial.know("watch")
    async with trial.start(one_by_one(recalls("disk", "Fridays", "fills")), house(0.02)) as runtime:
        run = await runtime.trigger("watch")
        found = await results(runtime, run)
        told = await warnings(runtime)
        used = await use(runtime, HOUSE)

    assert len(server.requests) == 2
    assert used == (2 * CENT, 0)
    assert sorted(each["degraded"] for each in found) == [False, False, True]
    assert [each["count"] for each in found] == [1, 1, 1]
    [why] = [why for what, why in told if what == "recall without its index"]
    spent = "the budget house ($0.02 for the tenant) is spent: $0.02 used; it is not renewed"
    assert why == f"no vector for the question, words only: {spent}"
    assert (run.status, run.result.error.type) == (RunStatus.TERMINATED, "budget_exhausted")


async def test_runs_at_once_go_over_a_budget_by_no_more_than_the_last_reservation(trial, server):
    named = ("one", "two", "three")
    await trial.know(*named)
    trial.client.open.clear()
    async with trial.start(lambda _: recalls("disk"), house(0.035), named=named) as runtime:
        running = [asyncio.create_task(runtime.trigger(name, {"question": "what fills up"})) for name in named]
        for _ in named:
            await trial.client.asked.acquire()
        reserved = await use(runtime, HOUSE)
        trial.client.open.set()
        runs = await asyncio.gather(*running)
        used = await use(runtime, HOUSE)

    assert reserved == (0, 3 * CENT)
    assert [each.result.error.type for each in runs] == ["budget_exhausted"] * 3
    assert len(server.requests) == 4
    assert used == (4 * CENT, 0)


async def test_recalls_count_against_a_budget_of_the_run_as_calls(trial, server):
    await trial.know("watch")
    calls = {"name": "few", "unit": "calls", "limit": 3, "scope": "run"}
    async with trial.start(one_by_one(recalls("disk", "Fridays", "fills")), calls) as runtime:
        run = await runtime.trigger("watch")
        found = await results(runtime, run)
        told = await warnings(runtime)

    assert len(server.requests) == 2
    assert sorted(each["degraded"] for each in found) == [False, False, True]
    assert run.result.error.message.startswith("the budget few (3 calls for the run) is spent: 3 calls used")
    assert [why for what, why in told if what == "budget"] == [
        "50 % of the budget few (3 calls for the run) is used",
        "80 % of the budget few (3 calls for the run) is used",
    ]


async def test_the_vector_for_what_a_run_is_shown_at_its_start_counts_against_its_budget(trial, server):
    await trial.know("watch")
    money = {"name": "own", "unit": "money", "limit": 0.01, "scope": "run", "alerts": []}
    async with trial.start(one_by_one(says("ok")), money) as runtime:
        run = await runtime.trigger("watch", {"question": "why does the disk fill"})
        told = await warnings(runtime)

    assert len(server.requests) == 1
    assert run.result.usage.cost == pytest.approx(0.01)
    assert run.result.error.message.startswith("the budget own ($0.01 for the run) is spent: $0.01 used")
    assert [what for what, _ in told] == ["run terminated"]


async def test_what_people_search_counts_for_the_agent_and_goes_by_words_when_that_is_spent(trial, server):
    own = {"name": "own", "unit": "money", "limit": 0.01, "reserve": 0.01}
    watch = AgentRef.parse("watch")
    await trial.know("watch")
    async with trial.start(one_by_one(), own) as runtime:
        first = await runtime.memory.search(watch, "when", 5)
        second = await runtime.memory.search(watch, "what fills", 5)
        used = await use(runtime, "own.money.@default/watch")

    assert (first.degraded, second.degraded) == (False, True)
    assert "the budget own ($0.01 for the agent) is spent" in second.reason
    assert [each.memory.content for each in second.memories] == [FRIDAYS]
    assert asked(server) == [["when"]]
    assert used == (CENT, 0)


@pytest.mark.parametrize("waiting_for", ["a recall", "a memory"])
async def test_indexing_stops_when_a_budget_is_spent_and_goes_on_when_it_is_renewed(trial, server, caplog, waiting_for):
    watch = AgentRef.parse("watch")
    async with trial.start(one_by_one(), house(0.02, period="day")) as runtime:
        search = runtime.memory.search

        async def remember(content):
            await runtime.memory.remember(watch, content)
            await asyncio.to_thread(runtime.indexed_memory.settle)

        await remember(FRIDAYS)
        before = asked(server)
        await remember("the pump is loud")
        await remember("the lift is slow")
        by_words = [await search(watch, question, 5) for question in ("disk fills", "pump loud")]
        await asyncio.to_thread(runtime.indexed_memory.settle)
        told = await warnings(runtime)
        spent = asked(server)
        await trial.clock.advance(10)
        if waiting_for == "a recall":
            await search(watch, "what is loud", 5)
        else:
            await remember("the door is shut")
        renewed = asked(server)[len(spent) :]
        used = await use(runtime, "house.money.2026-11-24@default")

    assert before == spent == [["dimension"], [FRIDAYS]]
    found = [[each.memory.content for each in recall.memories] for recall in by_words]
    assert found == [[FRIDAYS], ["the pump is loud"]]
    assert all("the budget house ($0.02 for the tenant a day) is spent" in recall.reason for recall in by_words)
    [why] = [why for what, why in told if what == "memories left without vectors"]
    assert why.endswith("it is renewed at 2026-11-24T00:00:00+00:00")
    assert sum("searched by their words only" in each for each in caplog.messages) == 1
    assert not any("failed" in each for each in caplog.messages)
    if waiting_for == "a recall":
        assert renewed == [["what is loud"], ["the pump is loud", "the lift is slow"]]
    else:
        assert renewed == [["the door is shut"], ["the pump is loud", "the lift is slow"]]
    assert used == (3 * CENT, 0)


async def test_vectors_count_against_the_tenant_s_model_tokens_of_the_minute_and_words_do_when_there_are_none(
    trial, server
):
    acme = TenantId("acme")
    watch = AgentRef.parse("watch", acme)
    async with trial.start(one_by_one()) as runtime:
        for each in (watch, AgentRef.parse("watch")):
            await runtime.memory.remember(each, FRIDAYS)
        await asyncio.to_thread(runtime.indexed_memory.settle)
        server.requests.clear()
        tenant = await runtime.tenants.create(LOCAL, acme, quotas=Quotas(model_tokens_a_minute=500_000))
        await trial.clock.advance(5)

        with_vector = await runtime.memory.search(watch, "when", 5)
        used = await runtime.tenants.use(tenant)
        by_words = await runtime.memory.search(watch, "disk fills", 5)
        await runtime.memory.remember(watch, "the pump is loud")
        await asyncio.to_thread(runtime.indexed_memory.settle)
        asked_in_that_minute = asked(server)
        of_another = await runtime.memory.search(AgentRef.parse("watch"), "who", 5)
        await trial.clock.advance(60)
        in_the_next_minute = await runtime.memory.search(watch, "what now", 5)
        told = await runtime.store.read(LedgerFilter(acme, kind=LedgerKind.WARNING, limit=100))

    assert (with_vector.degraded, by_words.degraded, in_the_next_minute.degraded) == (False, True, False)
    assert "quota.model_tokens_a_minute (500,000 tokens for the tenant a minute) is spent" in by_words.reason
    assert [each.memory.content for each in by_words.memories] == [FRIDAYS]
    assert asked_in_that_minute == [["when"]]
    assert set(trial.client.owners) == {("acme", "watch"), ("default", "watch")}
    assert used.model_tokens_a_minute == 500_000
    assert not of_another.degraded
    assert [each.record.data["what"] for each in told] == ["recall without its index"]


async def a_run_of(key, runtime, clock, payload=None):
    """Have the agent run for a key, and return what its calls of `recall` found when the run is over."""
    await runtime.store.apply([PutKey(key, None, ())])
    trigger = Trigger(TriggerKind.API, payload, submitters=(f"key:{key.key_id}",))
    accepted = await runtime.submit(AgentRef.parse("watch"), trigger, Admission(quota=key.quota))
    running = asyncio.create_task(runtime.outcome(accepted))
    while not running.done():
        await asyncio.sleep(0.01)
        await clock.advance(1)
    assert (await running).status is RunStatus.COMPLETED
    return await results(runtime, accepted)


async def test_vectors_that_a_run_asks_for_count_for_its_key(trial, server):
    await trial.know("watch")
    async with trial.start(one_by_one(recalls("disk", "Fridays"), says("done"))) as runtime:
        key = replace(KEY, model_tokens_a_minute=5_000_000)
        found = await a_run_of(key, runtime, ManualClock(MONDAY))
        used = await runtime.keys.use(key)

    assert [each["degraded"] for each in found] == [False, False]
    assert len(server.requests) == 2
    assert used.model_tokens_a_minute == 2 * 500_000 + 2 * 15


async def test_the_vector_for_what_a_run_is_shown_at_its_start_counts_for_its_key(trial, server):
    await trial.know("watch")
    async with trial.start(one_by_one(says("done"))) as runtime:
        key = replace(KEY, model_tokens_a_minute=5_000_000)
        await a_run_of(key, runtime, ManualClock(MONDAY), {"question": "why does the disk fill"})
        used = await runtime.keys.use(key)

    assert len(server.requests) == 1
    assert used.model_tokens_a_minute == 500_000 + 15


async def test_a_key_without_tokens_has_its_runs_find_what_words_find_and_no_other(trial, server):
    await trial.know("watch")
    async with trial.start(one_by_one(recalls("disk"), says("done"), recalls("Fridays"), says("done"))) as runtime:
        [of_key] = await a_run_of(replace(KEY, model_tokens_a_minute=10), runtime, trial.clock)
        [of_another] = await results(runtime, await runtime.trigger("watch"))

    assert (of_key["degraded"], of_another["degraded"]) == (True, False)
    assert [each["content"] for each in of_key["memories"]] == [FRIDAYS]
    assert asked(server) == [["Fridays"]]


class Died(BaseException):
    """A process ends in the middle of a call."""


async def test_what_was_reserved_to_index_by_a_process_that_died_is_free_when_the_agent_is_indexed_next(trial):
    acme, asked_for = TenantId("acme"), []
    watch = AgentRef.parse("watch", acme)
    whole = Budget("whole", BudgetScope.TENANT, BudgetUnit.TOKENS, 1_000_000)
    async with trial.start(one_by_one()) as runtime:
        await runtime.tenants.create(LOCAL, acme)
        loop = asyncio.get_running_loop()

        def apply(commands):
            return asyncio.run_coroutine_threadsafe(runtime.store.apply(commands), loop).result()

        def ask(request):
            asked_for.append(request.texts)
            if len(asked_for) == 1:
                raise Died
            return EmbeddingReply(((1.0, 2.0),), Usage(prompt_tokens=7))

        paid = BudgetedEmbeddings(
            ask,
            apply=apply,
            budgets=lambda _: [whole],
            quotas=lambda _: Quotas(model_tokens_a_minute=500_000),
            clock=trial.clock,
            ids=SequentialIds(),
        )

        def index():
            with on_account(EmbeddingAccount(watch, EmbeddingPurpose.INDEX)):
                paid(EmbeddingRequest("openai/text-embedding-3-small", (FRIDAYS,), 5.0, 5.0))

        with pytest.raises(Died):
            await asyncio.to_thread(index)
        (_, left), minute = await use(runtime, "whole.tokens.@acme"), minute_of(trial.clock.now())
        await trial.clock.advance(60)
        await asyncio.to_thread(index)

        assert left > 0
        assert await use(runtime, "whole.tokens.@acme") == (7, 0)
        assert await use(runtime, f"quota.model_tokens_a_minute.tokens.{minute.key}@acme") == (0, 0)


async def test_an_index_that_a_budget_keeps_from_being_made_anew_stays_as_it_is(trial, server):
    watch = AgentRef.parse("watch")
    await trial.know("watch")
    async with trial.start(one_by_one(), house(0.01)) as runtime:
        await runtime.memory.search(watch, "when", 5)
        with pytest.raises(BudgetExhaustedError, match="the budget house"):
            await runtime.memory.reindex(watch)
        again = await runtime.memory.search(watch, "when", 5)

    assert (again.degraded, [each.parts.cosine is not None for each in again.memories]) == (False, [True])
    assert asked(server) == [["when"]]


async def test_an_embedder_in_this_process_asks_no_budget(agents, tmp_path):
    class Free:
        """An embedder that costs nothing."""

        id, dimension, batch_size = "free", 2, 8

        def embed_queries(self, texts):
            return [[1.0, 2.0]] * len(texts)

        def embed_documents(self, texts, patience=EmbeddingWait.LONG):
            return self.embed_queries(texts)

    agents.define(governance={"budgets": [{"name": "few", "unit": "calls", "limit": 1, "scope": "tenant"}]})
    folders = {"agents_dir": agents.folder, "data_dir": tmp_path / "data"}
    model = Model(one_by_one(recalls("when")))
    async with in_process_runtime(**folders, models=[model], embedders=FixedEmbedder(Free())) as runtime:
        await runtime.memory.remember(AgentRef.parse("watch"), FRIDAYS)
        await asyncio.to_thread(runtime.indexed_memory.settle)
        run = await runtime.trigger("watch")
        [found] = await results(runtime, run)

    assert run.result.error.type == "budget_exhausted"
    assert (found["count"], found["degraded"]) == (1, False)
