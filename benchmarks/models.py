"""How many calls of a real model pass through the ModelGateway, with one process and with helpers.

Each measurement is a fresh gateway on a Ray of its own, in a child process, with 64 calls under way all the time: the two requests of a
run in turn, seven tools in each. Its provider is a stub on loopback (`benchmarks/openai_stub.py`). Counting begins when the gateway
has as many helpers as it may have. The baseline is litellm itself: the very same requests in bare processes, one a core.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import psutil

from benchmarks.child import running
from benchmarks.litellm_calls import LiteLLMCost, measure_litellm
from benchmarks.processes import ProcessTree, clean_environment, cpu_spent, stop
from benchmarks.question import Answer, Figure, Say, Size
from serve.processes import title_of

if TYPE_CHECKING:
    from actors.gateway_link import GatewayLink
    from owlclaw_ray.domain.model import ModelRequest

TITLE = "Model calls a second through the ModelGateway, with one process and with as many as cores."
AT_ONCE = 64
SECONDS = {Size.SMOKE: 3.0, Size.FULL: 10.0}
_GROWTH_SECONDS = 90.0
_WARM_SECONDS = 3.0
_START_SECONDS = 240.0
_LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Calls:
    """What one gateway passed."""

    calls: int
    wall_seconds: float
    cpu_seconds: dict[str, float]
    """By process, the most first; `driver` is the caller."""

    @property
    def per_second(self) -> float:
        """Calls that were answered."""
        return self.calls / self.wall_seconds

    @property
    def cpu_ms(self) -> float:
        """Of the gateway and its helpers, for each call."""
        ours = sum(self.cpu_seconds.get(name, 0.0) for name in ("ModelGatewayActor", "ModelWorkerActor"))
        return 1_000 * ours / self.calls


def answer(size: Size, say: Say) -> Answer:
    """Measure one process, as many as cores, and litellm alone."""
    cores, seconds = os.cpu_count() or 1, SECONDS[size]
    found: dict[int, Calls] = {}
    with running("benchmarks.openai_stub") as stub:
        keys = {"OPENAI_API_KEY": "sk-bench", "OPENAI_BASE_URL": stub.url, "OPENAI_API_BASE": stub.url}
        keys["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
        for workers in sorted({1, cores}):
            found[workers] = _measure(workers, seconds, keys)
            say(
                f"{workers} processes: {found[workers].per_second:.0f} calls/s, {found[workers].cpu_ms:.1f} CPU-ms a call"
            )
        bare = measure_litellm(stub.folder, keys, seconds)
    say(f"litellm alone in {cores} processes: {2 * bare.pairs_per_second:.0f} calls/s")
    details = {str(workers): asdict(calls) for workers, calls in found.items()}
    return Answer("models", _figures(found, bare, cores), details={"gateway": details, "litellm_alone": asdict(bare)})


def _figures(found: Mapping[int, Calls], bare: LiteLLMCost, cores: int) -> tuple[Figure, ...]:
    is_bare = f"litellm's own calls in {cores} bare processes"
    figures = [
        Figure(
            f"model_calls_per_second, {workers} processes",
            calls.per_second,
            "calls/s",
            baseline=2 * bare.pairs_per_second,
            baseline_is=is_bare,
            note="caller and stub take CPU of the same cores",
        )
        for workers, calls in found.items()
    ]
    figures += [
        Figure(
            f"cpu_ms_per_model_call, {workers} processes",
            calls.cpu_ms,
            "ms",
            baseline=bare.cpu_ms_per_pair / 2,
            baseline_is=is_bare,
        )
        for workers, calls in found.items()
    ]
    return tuple(figures)


def _measure(workers: int, seconds: float, environment: Mapping[str, str]) -> Calls:
    command = [sys.executable, "-m", "benchmarks.models", str(workers), str(seconds)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env={**clean_environment(), **environment})
    try:
        said, _ = process.communicate(timeout=_START_SECONDS + seconds)
    finally:
        stop(process, grace=1.0)
    return Calls(**orjson.loads(said.splitlines()[-1]))


def _requests() -> Iterator[ModelRequest]:
    """Return the two requests of a run in turn, for ever."""
    from owlclaw_ray.domain.agent import ModelChoice
    from owlclaw_ray.domain.model import Message, MessageRole, ModelRequest
    from owlclaw_ray.domain.tool import ToolCall
    from owlclaw_ray.domain.trigger import Trigger, TriggerKind
    from owlclaw_ray.ids import RequestId, ToolCallId
    from owlclaw_ray.tools.builtin import BuiltInTools

    call = ToolCall(ToolCallId("call_1"), "log_decision", '{"reasoning":"a benchmark","decision_type":"no_action"}')
    asked = Message(MessageRole.USER, "You were triggered: payload {}. Decide what is to be done, and say why. " * 5)
    replied = Message(MessageRole.ASSISTANT, "", (call,))
    told = Message(MessageRole.TOOL, '{"logged":true}', call_id=call.call_id)
    tools = orjson.dumps([tool.openai_form() for tool in BuiltInTools.definitions()])
    choice, trigger = ModelChoice(("openai/gpt-4o-mini",)), Trigger(TriggerKind.API)
    system = "You are a calm and precise agent that answers triggers. " * 40
    return cycle(
        ModelRequest(RequestId("req_1"), choice, system, messages, tools, 60.0, "bench", "run_1", trigger)
        for messages in ((asked,), (asked, replied, told))
    )


class _Load:
    """Keeps calls under way, and counts the answers."""

    def __init__(self, link: GatewayLink) -> None:
        self._link, self._requests = link, _requests()
        self.answered = 0

    async def keep_calling(self) -> None:
        while True:
            await self._link.complete(next(self._requests))
            self.answered += 1


async def _drive(link: GatewayLink, workers: int, seconds: float) -> Calls:
    tree, under = ProcessTree(psutil.Process()), _Load(link)
    callers = [asyncio.create_task(under.keep_calling()) for _ in range(AT_ONCE)]
    end = time.monotonic() + _GROWTH_SECONDS
    while _working_helpers(tree) < workers - 1:
        if time.monotonic() > end:
            raise TimeoutError(f"the gateway had not grown to {workers} processes after {_GROWTH_SECONDS:.0f} s")
        await asyncio.sleep(_LOOK_SECONDS)
    await asyncio.sleep(_WARM_SECONDS)
    answered, cpu, started = under.answered, tree.cpu_of_each(), time.monotonic()
    await asyncio.sleep(seconds)
    calls, wall = under.answered - answered, time.monotonic() - started
    used = cpu_spent(cpu, tree.cpu_of_each())
    for caller in callers:
        if caller.done():
            caller.result()
        caller.cancel()
    await asyncio.gather(*callers, return_exceptions=True)
    return Calls(calls, wall, used)


def _working_helpers(tree: ProcessTree) -> int:
    """Return how many helpers have connections to the provider."""
    port = int(os.environ["OPENAI_BASE_URL"].split(":")[2].split("/")[0])  # noqa: TID251 - set by the parent
    helpers = [each for each in tree.processes() if "ModelWorkerActor" in title_of(each)]
    return sum(any(c.raddr and c.raddr.port == port for c in each.net_connections("tcp")) for each in helpers)


@contextmanager
def _gateway(workers: int) -> Iterator[GatewayLink]:
    """Run a gateway on a local Ray until the block ends."""
    from actors.environment import ray_environment

    os.environ.update(ray_environment(2, alone=True))  # noqa: TID251 - as owlclaw up
    import ray

    from actors.cluster import start_ray
    from actors.gateway_link import GatewayLink
    from actors.model_gateway import ModelGatewayActor
    from actors.plan import RuntimePlan, ToolSlots, WorkerPlan
    from actors.remote import GATEWAY, call_now, full_name, make
    from owlclaw_ray.definitions.defaults import Defaults
    from owlclaw_ray.domain.endpoint import RealModel
    from owlclaw_ray.domain.placement import Placement
    from owlclaw_ray.kernel.retry import RetryPolicy

    slots = ToolSlots(alone=1, quick=1, memory=1, state=1)
    plan = RuntimePlan(
        worker=WorkerPlan("", "", "", "none", "bench"),
        store_url="",
        defaults=Defaults(),
        placement=Placement(),
        slots=slots,
        max_concurrent_models=AT_ONCE,
        model_retry=RetryPolicy(),
        catch_up_seconds=0,
        drain_seconds=0,
        model_workers_max=workers,
    )
    scratch = Path(tempfile.mkdtemp(prefix="owl-", dir="/tmp"))
    try:
        start_ray(address=None, temp_dir=scratch / "ray", num_cpus=None, slots=slots)
        actor = make(ModelGatewayActor, plan, name=full_name(GATEWAY), namespace="bench")
        call_now(actor, lambda gateway: gateway.warm([RealModel("openai/gpt-4o-mini", None)]), 120)
        yield GatewayLink("bench", "bench")
    finally:
        ray.shutdown()
        shutil.rmtree(scratch, ignore_errors=True)


def main() -> None:
    """Be the child: print one JSON line."""
    workers, seconds = int(sys.argv[1]), float(sys.argv[2])
    with _gateway(workers) as link:
        measured = asyncio.run(_drive(link, workers, seconds))
    print(orjson.dumps(asdict(measured)).decode())


if __name__ == "__main__":
    main()
