"""Outcomes that are complete only once texts are read which the batch itself does not need: triggers, journals, prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from owlclaw_ray.domain.agent import AgentState
from owlclaw_ray.domain.journal import EntryKind, JournalEntry
from owlclaw_ray.domain.lineage import Lineage
from owlclaw_ray.domain.run import Run
from owlclaw_ray.domain.trigger import Trigger
from owlclaw_ray.store.commands import AgentActivated, CancelOutcome, Outcome, RunClaimed, RunFinished


class BatchTexts(Struct):
    """What was read for the answers of a batch, after its changes were written."""

    triggers: Mapping[str, Trigger] = field(default_factory=dict)
    payloads_left: Mapping[str, int] = field(default_factory=dict)
    """See RunClaimed.payload_left."""
    journals: Mapping[str, Sequence[JournalEntry]] = field(default_factory=dict)
    blobs: Mapping[str, str] = field(default_factory=dict)


def named_blobs(entries: Sequence[JournalEntry]) -> tuple[str, ...]:
    """Return the hashes of the texts that prompt_built entries name."""
    built = [entry.data for entry in entries if entry.kind is EntryKind.PROMPT_BUILT]
    return tuple(data[key] for data in built for key in ("system", "tools") if data.get(key))


class CancelAnswer(Struct, frozen=True):
    """A cancel's outcome."""

    run: Run
    waited: bool = False

    def complete(self, texts: BatchTexts) -> CancelOutcome:
        """Return the outcome."""
        return CancelOutcome(replace(self.run, trigger=texts.triggers[self.run.run_id]), self.waited)


class ClaimAnswer(Struct, frozen=True):
    """The claim of a run that has a past: its journal up to and with the entry `upto`."""

    run: Run
    upto: int
    lineage: Lineage | None = None
    """The agent's."""

    def complete(self, texts: BatchTexts) -> RunClaimed:
        """Return the outcome."""
        trigger = texts.triggers[self.run.run_id].within(self.lineage)
        journal = tuple(entry for entry in texts.journals[self.run.run_id] if entry.seq <= self.upto)
        blobs = {digest: texts.blobs[digest] for digest in named_blobs(journal) if digest in texts.blobs}
        run = replace(self.run, trigger=trigger)
        return RunClaimed(run, journal, blobs, texts.payloads_left[self.run.run_id])


class FinishAnswer(Struct, frozen=True):
    """The end of a run, and the claim of one that has a past."""

    claim: ClaimAnswer

    @property
    def run(self) -> Run:
        """The claimed run."""
        return self.claim.run

    def complete(self, texts: BatchTexts) -> RunFinished:
        """Return the outcome."""
        return RunFinished(self.claim.complete(texts))


class ActivateAnswer(Struct, frozen=True):
    """An activation, and the claim of a run that has a past."""

    epoch: int
    state: AgentState
    claim: ClaimAnswer

    @property
    def run(self) -> Run:
        """The claimed run."""
        return self.claim.run

    def complete(self, texts: BatchTexts) -> AgentActivated:
        """Return the outcome."""
        return AgentActivated(self.epoch, self.state, self.claim.complete(texts))


LateAnswer: TypeAlias = CancelAnswer | ClaimAnswer | FinishAnswer | ActivateAnswer
Answer: TypeAlias = Outcome | LateAnswer
