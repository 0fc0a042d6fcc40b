"""Correctness properties of what a user meets: whole runs over files, store and index. Their numbers are those of the requirements."""

from __future__ import annotations

import asyncio
import itertools
import os
from contextlib import AsyncExitStack
from datetime import UTC, datetime

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from owlclaw_ray import OwlClaw
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.model import MessageRole
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.memory.embedders import FixedEmbedder
from owlclaw_ray.memory.markdown import parse
from owlclaw_ray.models.sanitise import text_of_reply
from owlclaw_ray.store.queries import JournalOfRun
from owlclaw_ray.testing.in_process import in_process_runtime
from tests.memory.lance.conftest import LetterEmbedder
from tests.properties import examples
from tests.worlds import Agents, Model, asks, says

WATCH = AgentRef.parse("watch")
IDENTITY = "# Watch\n\n## My Capabilities\n- {}\n"


@pytest.fixture(scope="module")
def runner():
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def system(runner, tmp_path_factory):
    """Starts a runtime over definitions of its own, and ends it with the module."""
    with_all = AsyncExitStack()

    def started(model, app=None, **options):
        folder = tmp_path_factory.mktemp("system")
        agents = Agents(folder / "agents")
        definition = agents.define(**options.pop("definition", {"model": "test"}))
        runtime = in_process_runtime(
            agents_dir=agents.folder, data_dir=folder / "data", app=app, models=[model], **options
        )
        return runner.run(with_all.enter_async_context(runtime)), definition

    yield started
    runner.run(with_all.aclose())


words = st.text("abcdefgh甲乙丙", min_size=9, max_size=9)


@pytest.fixture(scope="module")
def identified(system):
    model = Model(lambda _: says("done"))
    return model, *system(model)


def rewrite(path, text):
    """Save the file as nobody can see who looks at its size and its times."""
    before = path.stat()
    path.write_bytes(text.encode("utf-32-le"))
    path.write_text(text, encoding="utf-8")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.property
@examples
@given(texts=st.lists(st.tuples(words, words), min_size=1, max_size=3))
def test_property_03_after_a_reload_runs_have_the_identity_that_the_files_hold_then(runner, identified, texts):
    model, runtime, folder = identified

    async def runs_have_them():
        for soul, capability in texts:
            rewrite(folder / "SOUL.md", soul)
            rewrite(folder / "IDENTITY.md", IDENTITY.format(capability))
            await runtime.reload(WATCH)
            for _ in range(2):
                await runtime.trigger("watch")
                assert soul in model.requests[-1].system
                assert f"- {capability}" in model.requests[-1].system

    runner.run(runs_have_them())


RESULTS = st.lists(st.integers(20, 9_000), min_size=5, max_size=12)


@pytest.fixture(scope="module")
def read_on(system):
    """Has a model with a small window read texts, one a turn; returns the run's last prompt and the texts."""
    texts, asked, app = [], [], OwlClaw("library")

    @app.handler("library.read", permission="readonly")
    def read(number: int) -> str:
        """Read a page."""
        return texts[number]

    def decide(request):
        asked.append(request)
        number = len(asked) - 1
        return says("done") if number == len(texts) else asks(("library__read", f'{{"number":{number}}}'))

    model = Model(decide)
    limits = {"tool_calls": 50, "turns": 50, "short_term_tokens": 600}
    runtime, _ = system(
        model, app, definition={"model": "test/small", "limits": limits}, context_windows={"test/small": 16_000}
    )

    async def run(sizes):
        asked.clear()
        texts[:] = [f"page {number}: " + f"line {number} " * (size // 8) for number, size in enumerate(sizes)]
        return await runtime.trigger("watch"), asked[-1], tuple(texts), runtime

    return run


@pytest.mark.property
@examples
@given(sizes=RESULTS)
def test_property_05_a_prompt_that_gets_too_long_keeps_the_newest_and_a_record_of_what_it_drops(runner, read_on, sizes):
    async def checked():
        run, last, texts, runtime = await read_on(sizes)
        journal = await runtime.store.read(JournalOfRun(run.agent.tenant, run.run_id))
        compacted = [each.data for each in journal if each.kind is EntryKind.CONTEXT_COMPACTED]
        return run, last, texts, compacted

    run, last, texts, compacted = runner.run(checked())
    results = [text_of_reply(each.content) for each in last.messages if each.role is MessageRole.TOOL]
    dropped = len(texts) - len(results)

    assert run.status is RunStatus.COMPLETED
    assert sum(each.get("dropped", 0) for each in compacted) == dropped
    assert results
    for text, shown in zip(texts[dropped:], results, strict=True):
        assert shown[:100] == text[:100] or text.startswith(shown.partition(" …[cut here")[0])
    if not compacted:
        assert tuple(results) == texts
    if dropped:
        opening = last.messages[0].content
        newest = texts[dropped - 1][:60]
        assert f"there {'was 1 turn' if dropped == 1 else f'were {dropped} turns'} that" in opening
        assert newest in opening


VOCABULARY = [
    "anchor",
    "bicycle",
    "crane",
    "diesel",
    "engine",
    "forklift",
    "gravel",
    "harbour",
    "invoice",
    "jacket",
    "kettle",
    "ladder",
    "magnet",
    "needle",
    "oyster",
    "pallet",
    "quarry",
    "rocket",
    "saddle",
    "tunnel",
    "umbrella",
    "valley",
    "wagon",
    "yacht",
    "zipper",
    "仓库",
    "退款",
    "客户",
    "审批",
    "吊车",
    "风速",
    "茶叶",
    "上海",
    "供货",
    "周末",
]
OTHERS = 12
"""Memories of the agent that share no word with the one in question."""
FOUND = 6
"""Of one that is found by its letters alone, neighbours of others that resemble it can come before it."""


@pytest.fixture(scope="module")
def remembering(runner, system):
    """Has an agent of its own remember texts in one run and recall in the next; returns what it recalled and what its MEMORY.md holds."""
    plan, agents = [], itertools.count()
    model = Model(lambda _: plan.pop(0))
    runtime, folder = system(model, embedders=FixedEmbedder(LetterEmbedder()))

    async def run(contents, tags, queries):
        agent = AgentRef.parse(f"watch:{next(agents)}")
        remember = [("remember", orjson.dumps({"content": each, "tags": tags}).decode()) for each in contents]
        recall = [("recall", orjson.dumps({"query": each, "limit": FOUND}).decode()) for each in queries]
        plan[:] = [asks(*remember), says("done"), asks(*recall), says("done")]
        await runtime.trigger(str(agent))
        await asyncio.to_thread(runtime.indexed_memory.settle)
        await runtime.trigger(str(agent))
        answers = [each.content for each in model.requests[-1].messages if each.role is MessageRole.TOOL]
        data = (folder.parents[1] / "data" / "agents" / agent.folder / "MEMORY.md").read_bytes()
        return [orjson.loads(each) for each in answers], parse(data, datetime.min.replace(tzinfo=UTC)).memories

    return lambda *asked: runner.run(run(*asked))


@pytest.mark.property
@examples
@given(
    chosen=st.sets(st.sampled_from(VOCABULARY), min_size=2, max_size=5),
    at=st.integers(0, OTHERS),
    tags=st.lists(st.text("abc丁", min_size=1, max_size=5), max_size=3, unique=True),
)
def test_property_06_what_is_remembered_stands_in_memory_md_and_is_recalled_by_its_words_and_by_its_vector(
    remembering, chosen, at, tags
):
    content = " ".join(sorted(chosen))
    without_a_word_of_it = content.replace(" ", "")[::-1]
    contents = [f"{each} kept" for each in VOCABULARY if each not in chosen][:OTHERS]
    contents.insert(at, content)

    recalls, memories = remembering(contents, tags, (content, without_a_word_of_it))

    assert sorted(each.content for each in memories) == sorted(contents)
    assert all(set(each.tags) == set(tags) for each in memories)
    for recalled in recalls:
        assert not recalled.get("degraded")
        assert content in [each["content"] for each in recalled["memories"]]
