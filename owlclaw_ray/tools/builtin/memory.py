"""remember, recall."""

from __future__ import annotations

from owlclaw_ray.domain.embedding import EmbeddingPurpose
from owlclaw_ray.domain.entries import recall_records
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.ledger import LedgerRecord
from owlclaw_ray.domain.memory import Memory, ScoredMemory
from owlclaw_ray.errors import StoreUnavailableError
from owlclaw_ray.ids import MemoryId, RecordId, derived_id
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.memory.lance import LanceMemory
from owlclaw_ray.models.embedding_account import EmbeddingAccount, on_account
from owlclaw_ray.tools.builtin.arguments import RecallArguments, RememberArguments
from owlclaw_ray.tools.builtin.contract import BuiltInOutcome, Caller


class MemoryTools:
    """The agent's own long-term memory."""

    def __init__(self, memory: LanceMemory, clock: Clock) -> None:
        self._memory = memory
        self._clock = clock

    def remember(self, arguments: RememberArguments, caller: Caller) -> BuiltInOutcome:
        """Store a memory; a repeated call returns the first, and what is equal to an earlier one but for its form that one."""
        memory = Memory(
            memory_id=MemoryId(derived_id("mem", caller.idempotency_key)),
            content=arguments.content,
            tags=tuple(dict.fromkeys(arguments.tags)),
            created_at=self._clock.now(),
            run_id=caller.run_id,
        )
        try:
            stored = self._memory.remember(caller.agent, memory)
        except OSError as error:
            raise StoreUnavailableError(f"MEMORY.md cannot be written: {error.strerror or error}") from error
        return BuiltInOutcome(
            {
                "memory_id": stored.memory_id,
                "created_at": stored.created_at.isoformat(),
                "tags": list(stored.tags),
            }
        )

    def recall(self, arguments: RecallArguments, caller: Caller) -> BuiltInOutcome:
        """Return what is found, best first, and whether the index was out of use; the ledger learns that, and what it cost."""
        search = self._memory.files.search_archive if arguments.archived else self._memory.recall
        account = EmbeddingAccount(
            caller.agent,
            EmbeddingPurpose.RECALL,
            caller.run_id,
            caller.idempotency_key,
            caller.no_embedding,
            caller.key_quotas,
        )
        with on_account(account):
            found = search(caller.agent, arguments.query, arguments.limit, tuple(arguments.tags), caller.timezone)
        memories = [_described(one, explained=arguments.explain) for one in found.memories]
        content = {"memories": memories, "count": len(memories), "degraded": found.degraded}
        records = tuple(
            LedgerRecord(
                record_id=RecordId(derived_id("rec", name, caller.idempotency_key)),
                tenant=caller.agent.tenant,
                agent_id=caller.agent.agent_id,
                run_id=caller.run_id,
                kind=kind,
                at=self._clock.now(),
                data=data,
            )
            for kind, name, data in recall_records(found)
        )
        return BuiltInOutcome(content, records, found.embeddings)


def _described(found: ScoredMemory, *, explained: bool) -> JsonObject:
    memory = found.memory
    described: JsonObject = {
        "memory_id": memory.memory_id,
        "content": memory.content,
        "tags": list(memory.tags),
        "created_at": memory.created_at.isoformat(),
        "score": round(found.score, 4),
    }
    return {**described, "explanation": found.parts.as_json()} if explained else described
