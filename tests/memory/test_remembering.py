"""What the tool `remember` keeps of what a model says, as it stands in MEMORY.md and comes back at a recall."""

from __future__ import annotations

from datetime import UTC, datetime

import orjson
import pytest

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.model import MessageRole
from owlclaw_ray.memory.markdown import parse
from owlclaw_ray.testing.in_process import in_process_runtime
from tests.worlds import Model, asks, says

WATCH = AgentRef.parse("watch")


@pytest.fixture
def remembered(agents, tmp_path):
    """Has a model remember texts one after the other, and returns the answers of the tool and what stands in MEMORY.md then."""

    async def remember(*contents):
        agents.define()
        arguments = [{"content": content, "tags": [f"t{at}"]} for at, content in enumerate(contents)]
        replies = iter([*(asks(("remember", orjson.dumps(each).decode())) for each in arguments), says("ok")])
        model = Model(lambda _: next(replies))
        async with in_process_runtime(agents_dir=agents.folder, data_dir=tmp_path / "data", models=[model]) as runtime:
            await runtime.trigger("watch", "note this")
        answers = [orjson.loads(each.content) for each in model.requests[-1].messages if each.role is MessageRole.TOOL]
        data = (tmp_path / "data" / "agents" / WATCH.folder / "MEMORY.md").read_bytes()
        return answers, parse(data, datetime.min.replace(tzinfo=UTC)).memories

    return remember


async def test_what_differs_in_a_sign_a_letter_or_a_case_is_remembered_beside_it(remembered):
    contents = [
        "Sell when the price is > 100 euros",
        "Sell when the price is < 100 euros",
        "vitamin A deficiency",
        "vitamin deficiency",
        "user id of Ana is aB3dE9",
        "user id of Ana is Ab3De9",
        "网吧周末开门",
        "网周末开门",
    ]
    answers, stored = await remembered(*contents)

    assert len({each["memory_id"] for each in answers}) == len(contents)
    assert [each.content for each in stored] == contents


async def test_another_form_of_a_memory_is_the_same_memory_and_stands_beside_it(remembered):
    first, second = "客户用 Python，限额５０００元", "客户用Python,限额5000元。"  # noqa: RUF001 - as people type it
    answers, (stored,) = await remembered(first, second)

    assert answers[0]["memory_id"] == answers[1]["memory_id"] == stored.memory_id
    assert (stored.content, stored.also) == (first, (second,))
    assert (stored.count, stored.tags) == (2, ("t0", "t1"))
