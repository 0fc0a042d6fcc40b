"""What runs leave in memory. Hosts collect garbage seldom, so what only the garbage collector frees is there for long."""

import asyncio
import gc
from collections import Counter

import pytest

from owlclaw_ray.runs.conversation import Conversation
from owlclaw_ray.runs.run_journal import RunJournal
from owlclaw_ray.runs.run_loop import RunLoop
from owlclaw_ray.testing.in_process import in_process_runtime
from tests.worlds import Model, asks, says


@pytest.fixture
def _without_collector():
    gc.freeze()  # what others left behind is not looked at
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()


def of_runs():
    """Return how many objects there are that belong to one run each."""
    return Counter(
        kind.__name__ for each in gc.get_objects() if (kind := type(each)) in {RunLoop, RunJournal, Conversation}
    )


@pytest.mark.usefixtures("_without_collector")
async def test_a_run_that_is_over_leaves_nothing_for_the_garbage_collector(agents, tmp_path):
    agents.define()
    replies = iter([asks(("log_decision", '{"reasoning":"because"}')), says("done")] * 3)

    async with in_process_runtime(
        agents_dir=agents.folder, data_dir=tmp_path / "data", models=[Model(lambda _: next(replies))]
    ) as runtime:
        before = of_runs()
        for number in range(3):
            await runtime.trigger("watch", number)
        async with asyncio.timeout(20):
            while of_runs() - before:
                await asyncio.sleep(0.01)
