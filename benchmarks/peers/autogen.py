"""Microsoft's autogen-core: an agent a key in a SingleThreadedAgentRuntime, the tool behind a tool agent. In process, nothing durable.

Started as `python -m benchmarks.peers.autogen FOLDER`.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass

from autogen_core import AgentId, FunctionCall, MessageContext, RoutedAgent, SingleThreadedAgentRuntime, message_handler
from autogen_core.tool_agent import ToolAgent
from autogen_core.tools import FunctionTool

from benchmarks.peers.in_process import serve_load
from benchmarks.peers.job import TOOL, Conversation, ask_model, log_decision

AGENTS = 1_000


@dataclass
class Trigger:
    """Starts a run."""

    payload: dict[str, int]


@dataclass
class Outcome:
    """Ends it."""

    text: str


class BenchAgent(RoutedAgent):
    """Asks the model, has the tool agent carry out its calls, and asks again."""

    def __init__(self) -> None:
        super().__init__("an agent")

    @message_handler
    async def on_trigger(self, message: Trigger, ctx: MessageContext) -> Outcome:
        """One run."""
        reply = await ask_model([])
        conversation: Conversation = [dict(message.payload), dict(reply)]
        for call in reply["calls"]:
            request = FunctionCall(id=call["id"], name=call["name"], arguments=json.dumps(call["arguments"]))
            tools = AgentId("tools", self.id.key)
            result = await self.send_message(request, tools, cancellation_token=ctx.cancellation_token)
            conversation.append({"content": result.content})
        return Outcome((await ask_model(conversation))["text"])


async def main() -> None:
    """Run until the process is ended."""
    runtime = SingleThreadedAgentRuntime()
    tool = FunctionTool(log_decision, description="Log a decision.", name=TOOL)
    await BenchAgent.register(runtime, "bench", BenchAgent)
    await ToolAgent.register(runtime, "tools", lambda: ToolAgent("tools", [tool]))
    runtime.start()

    async def run(number: int) -> str:
        outcome = await runtime.send_message(Trigger({"price": number}), AgentId("bench", str(number % AGENTS)))
        return str(outcome.text)

    await serve_load(run)


if __name__ == "__main__":
    asyncio.run(main())
