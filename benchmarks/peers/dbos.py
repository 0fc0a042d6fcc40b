"""DBOS on SQLite: an asynchronous workflow a run, every model call and tool call a step.

    python -m benchmarks.peers.dbos FOLDER [wal]

Workflows are awaited in the process that starts them, which is the cheapest way that DBOS offers: no queue, no polling for the result.
`wal` puts the database into SQLite's write-ahead log through a custom engine; DBOS leaves it in rollback mode.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import sqlalchemy
from dbos import DBOS, DBOSConfig

from benchmarks.peers.in_process import serve_load
from benchmarks.peers.job import Conversation, Reply, ask_model, log_decision


@DBOS.step()
async def model_step(conversation: Conversation) -> Reply:
    """One model call."""
    return await ask_model(conversation)


@DBOS.step()
async def tool_step(arguments: dict[str, str]) -> dict[str, Any]:
    """One tool call."""
    return await log_decision(**arguments)


@DBOS.workflow()
async def agent_run(payload: dict[str, int]) -> str:
    """One run."""
    first = await model_step([])
    conversation: Conversation = [payload, dict(first)]
    for call in first["calls"]:
        conversation.append(await tool_step(call["arguments"]))
    return (await model_step(conversation))["text"]


def configuration(folder: Path, *, wal: bool) -> DBOSConfig:
    """Return where DBOS keeps its state."""
    url = f"sqlite:///{folder / 'dbos.sqlite'}"
    config: DBOSConfig = {"name": "owlclaw-peer", "system_database_url": url, "log_level": "WARNING"}
    if wal:
        config["system_database_engine"] = wal_engine(url)
    return config


def wal_engine(url: str) -> sqlalchemy.Engine:
    """Return an engine like DBOS' own whose connections use a write-ahead log, every commit synchronised to disk."""
    engine = sqlalchemy.create_engine(url)

    @sqlalchemy.event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: Any) -> None:
        connection.isolation_level = "IMMEDIATE"
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=30000", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")

    return engine


async def main(folder: Path, *, wal: bool) -> None:
    """Run until the process is ended."""
    DBOS(config=configuration(folder, wal=wal))
    DBOS.launch()
    await serve_load(lambda number: agent_run({"price": number}))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), wal="wal" in sys.argv[2:]))
