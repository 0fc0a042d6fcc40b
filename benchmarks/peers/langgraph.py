"""LangGraph with its asynchronous SQLite saver: a graph model → tool → model, a thread a run.

    python -m benchmarks.peers.langgraph FOLDER sync|async

`sync` writes every checkpoint before the next step starts, as our runs do; `async`, LangGraph's default, writes it meanwhile.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any, Literal

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph

from benchmarks.peers.in_process import serve_load
from benchmarks.peers.job import ask_model, log_decision


async def call_model(state: MessagesState) -> dict[str, Any]:
    """One model call."""
    reply = await ask_model([{"text": message.content} for message in state["messages"][1:]])
    calls = [{"id": call["id"], "name": call["name"], "args": call["arguments"]} for call in reply["calls"]]
    return {"messages": [AIMessage(reply["text"], tool_calls=calls)]}


async def call_tools(state: MessagesState) -> dict[str, Any]:
    """The tool calls of the last reply."""
    calls = state["messages"][-1].tool_calls
    results = [(call["id"], await log_decision(**call["args"])) for call in calls]
    return {"messages": [ToolMessage(str(result), tool_call_id=call_id) for call_id, result in results]}


def after_the_model(state: MessagesState) -> Literal["tools", "__end__"]:
    """Go on with the tools that the model asked for, if any."""
    return "tools" if state["messages"][-1].tool_calls else END


def agent_graph() -> StateGraph:
    """Return the graph, not yet compiled."""
    graph = StateGraph(MessagesState)
    graph.add_node("model", call_model)
    graph.add_node("tools", call_tools)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", after_the_model)
    graph.add_edge("tools", "model")
    return graph


async def main(folder: Path, durability: str) -> None:
    """Run until the process is ended."""
    async with AsyncSqliteSaver.from_conn_string(str(folder / "checkpoints.sqlite")) as saver:
        graph = agent_graph().compile(checkpointer=saver)

        async def run(number: int) -> str:
            state = await graph.ainvoke(
                {"messages": [HumanMessage(f'{{"price": {number}}}')]},
                {"configurable": {"thread_id": f"run-{number}"}},
                durability=durability,
            )
            return str(state["messages"][-1].content)

        await serve_load(run)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
