"""A run's conversation, as the fold of its journal.

Executing a run and resuming one are the same thing here: every fact becomes a journal entry, and the entry, not the fact, moves
the conversation on. What a crash leaves behind is therefore exactly what the run loop would have seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TypeAlias

from msgspec import Struct, convert, field
from msgspec.structs import asdict, replace

from owlclaw_ray.domain.approval import ApprovalDecision
from owlclaw_ray.domain.governance import CallOutcome
from owlclaw_ray.domain.journal import EntryKind, JournalEntry
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.model import Message, MessageRole, ModelReply, ModelRoute
from owlclaw_ray.domain.run import Usage
from owlclaw_ray.domain.tool import ToolCall, ToolResult
from owlclaw_ray.ids import RunId, ToolCallId
from owlclaw_ray.models.sanitise import as_reply

NOT_EXECUTED = "not_executed"
"""The error type of calls that were never begun."""


Turn: TypeAlias = Sequence[Message]
"""A reply, and the results of its calls."""


class ChildRunStarted(Struct, frozen=True):
    """A call started a run that is not over."""

    call_id: ToolCallId
    run_id: RunId
    executed: str | None = None
    """The arguments that it was started with, if a hook or a person changed them."""
    hooks: tuple[JsonObject, ...] = ()
    """What the hooks before the call did to it: they had their say."""


def started_data(runs: Sequence[ChildRunStarted]) -> JsonObject:
    """Return what the entry of a run that waits says of the runs that it started."""
    if not runs:
        return {}
    ids = {each.call_id: each.run_id for each in runs}
    hooked = [each for each in runs if each.hooks or each.executed is not None]
    passed = {each.call_id: {"executed": each.executed, "hooks": list(each.hooks)} for each in hooked}
    return {"runs": ids, "passed": passed} if passed else {"runs": ids}


def started_runs(data: JsonObject) -> dict[ToolCallId, ChildRunStarted]:
    """Return the runs that such an entry names, by the calls that started them."""
    passed = data.get("passed", {})
    untouched: JsonObject = {"executed": None, "hooks": []}
    found = ((call_id, run_id, passed.get(call_id, untouched)) for call_id, run_id in data.get("runs", {}).items())
    runs = (
        ChildRunStarted(ToolCallId(call), RunId(run), did["executed"], tuple(did["hooks"])) for call, run, did in found
    )
    return {each.call_id: each for each in runs}


class Conversation(Struct):
    """Everything that the journal says about a run so far."""

    last_seq: int = 0
    active: float = 0.0
    """For how many seconds activations are known to have worked on it: from taking it up to their last entry, less waits for slots."""
    silences: list[float] = field(default_factory=list)
    """The seconds from the last entry of an activation until the next took the run over from it: it may have worked in them."""
    active_at: datetime | None = None
    """Up to when `active` is known; None while nobody works on it."""
    woken: JsonObject | None = None
    """For what a heartbeat woke the agent: data of the entry."""
    system: str = ""
    tools: bytes = b"[]"
    visible: tuple[str, ...] = ()
    route: ModelRoute | None = None
    """The models that the run asks, if not its definition's."""
    withheld_skills: tuple[tuple[str, str], ...] = ()
    """Skills that the run must not read, each with the reason."""
    environment: tuple[tuple[str, str], ...] = ()
    """Variables for the programs of its tools."""
    messages: list[Message] = field(default_factory=list)
    """As the model gets them. Complete turns only: the results of a turn join together, in the model's order, when the last of
    them is there."""
    bytes: int = 0
    """Of system message, tools and messages, in UTF-8."""
    opening: str = ""
    """The first message as it was built; `earlier` follows it in `messages`."""
    compacted: bool = False
    """Whether the conversation outgrew the model's context window."""
    window: int | None = None
    """How many tokens the model was found to take, if less than was known."""
    dropped: int = 0
    """How many of the oldest turns the model gets no more."""
    records: tuple[JsonObject, ...] = ()
    """Of the last turns that were dropped."""
    earlier: str = ""
    """How these are shown."""
    calls: dict[ToolCallId, ToolCall] = field(default_factory=dict)
    """The calls of the last reply, in the model's order."""
    calls_before: int = 0
    """`tool_calls` before the last reply."""
    results: dict[ToolCallId, ToolResult] = field(default_factory=dict)
    """The results of the last reply's calls, as far as they are there."""
    started: set[ToolCallId] = field(default_factory=set)
    """`once` calls that were begun."""
    interrupted: frozenset[ToolCallId] = frozenset()
    """Calls that had no result when the run was taken over: they may have been begun."""
    awaited: dict[ToolCallId, ChildRunStarted] = field(default_factory=dict)
    """The runs that calls of the last reply started, as far as the run has waited since."""
    asked: dict[ToolCallId, JsonObject] = field(default_factory=dict)
    """What approvals were requested for calls of the last reply: data of the entries."""
    decided: dict[ToolCallId, ApprovalDecision] = field(default_factory=dict)
    """What was decided about them."""
    turns: int = 0
    tools_called: list[str] = field(default_factory=list)
    tool_calls: int = 0
    """Calls that were executed, or were refused for what the model wrote: these count against the limit."""
    outcomes: list[CallOutcome] = field(default_factory=list)
    """The ends of all calls, in order."""
    known_calls: set[ToolCallId] = field(default_factory=set)
    usage: Usage = field(default_factory=Usage)
    embeddings: int = 0
    """How many calls for vectors were made for it."""
    model: str = ""
    scripted: bool = False
    final_text: str = ""

    @property
    def model_calls(self) -> int:
        """How often models were asked: for replies, and for vectors."""
        return self.turns + self.embeddings

    @property
    def prompt_built(self) -> bool:
        """Whether the first message stands."""
        return bool(self.messages)

    def unanswered(self) -> tuple[ToolCall, ...]:
        """Return the calls that have no recorded result, in the model's order."""
        return tuple(call for call_id, call in self.calls.items() if call_id not in self.results)

    def restore(self, entries: Iterable[JournalEntry], blobs: Mapping[str, str]) -> None:
        """Apply a whole journal."""
        for entry in entries:
            self.apply(entry, blobs)

    def apply(self, entry: JournalEntry, blobs: Mapping[str, str]) -> None:
        """Move on by one fact."""
        self.last_seq = entry.seq
        self._count_time(entry)
        data = entry.data
        match entry.kind:
            case EntryKind.HEARTBEAT_WOKEN:
                self.woken = data
            case EntryKind.PROMPT_BUILT:
                self.system, self.tools = blobs[data["system"]], blobs[data["tools"]].encode()
                self.visible = tuple(data["visible"])
                self.route = convert(data.get("route"), ModelRoute | None)
                self.withheld_skills = tuple(data.get("withheld", {}).items())
                self.environment = tuple(data.get("environment", {}).items())
                self.opening = data["user"]
                self.bytes = len(self.system.encode()) + len(self.tools)
                self._join(Message(MessageRole.USER, self.opening))
                self._embedded(data)
            case EntryKind.CONTEXT_COMPACTED:
                self._compact(data)
            case EntryKind.MODEL_REPLIED:
                reply = convert(data, ModelReply)
                self.turns += 1
                self.usage += reply.usage
                self.model, self.scripted = reply.model, self.scripted or reply.scripted
                self.final_text = reply.text
                self._join(Message(MessageRole.ASSISTANT, reply.text, reply.tool_calls))
                self.calls, self.results = {call.call_id: call for call in reply.tool_calls}, {}
                self.asked, self.decided, self.awaited = {}, {}, {}
                self.calls_before = self.tool_calls
                self.known_calls.update(self.calls)
            case EntryKind.RUN_RESUMED:
                self.interrupted = frozenset(call.call_id for call in self.unanswered())
            case EntryKind.RUN_WAITING:
                self.awaited |= started_runs(data)
            case EntryKind.APPROVAL_REQUESTED:
                call_id = ToolCallId(data["call_id"])
                self.asked[call_id] = data
                self.started.discard(call_id)
                self.interrupted -= {call_id}
            case EntryKind.APPROVAL_DECIDED:
                self.decided[ToolCallId(data["call_id"])] = convert(data, ApprovalDecision)
            case EntryKind.TOOL_STARTED:
                self.started.add(ToolCallId(data["call_id"]))
            case EntryKind.TOOL_FINISHED:
                self._finish(data["tool"], convert(data, ToolResult), entry.at.timestamp())
                self._embedded(data)
            case _:
                pass

    def _count_time(self, entry: JournalEntry) -> None:
        elapsed = 0.0 if self.active_at is None else max(0.0, (entry.at - self.active_at).total_seconds())
        match entry.kind:
            case EntryKind.RUN_STARTED | EntryKind.RUN_CONTINUED:
                self.active_at = entry.at
            case EntryKind.RUN_RESUMED:
                self.silences.append(elapsed)
                self.active_at = entry.at
            case _ if self.active_at is not None:
                self.active += max(0.0, elapsed - entry.data.get("waited_ms", 0) / 1_000)
                self.active_at = None if entry.kind is EntryKind.RUN_WAITING else entry.at
            case _:
                pass

    def _embedded(self, data: JsonObject) -> None:
        if "embeddings" in data:
            self.usage += convert(data["usage"], Usage)
            self.embeddings += len(data["embeddings"])

    def _finish(self, tool: str, result: ToolResult, at: float) -> None:
        self.results[result.call_id] = result
        self.outcomes.append(CallOutcome(tool, result.call_id, result.error.type if result.error else "", at))
        if result.error is None or result.error.type != NOT_EXECUTED:
            self.tools_called.append(tool)
            self.tool_calls += 1
        if len(self.results) == len(self.calls):
            for call_id in self.calls:
                self._join(Message(MessageRole.TOOL, content_for_model(self.results[call_id]), call_id=call_id))

    def _join(self, message: Message) -> None:
        self.messages.append(message)
        self.bytes += _bytes(message)

    def _compact(self, data: JsonObject) -> None:
        self.compacted, self.window = True, data.get("window", self.window)
        first, turns = self.messages[0], turns_of(self.messages)
        if dropped := data.get("dropped", 0):
            self.dropped += dropped
            self.records, self.earlier = tuple(data["records"]), data["earlier"]
            first = replace(first, content=f"{self.opening}\n\n{self.earlier}")
        shortened = data.get("shortened", {})
        kept = (each for turn in turns[dropped:] for each in turn)
        before = sum(map(_bytes, self.messages))
        self.messages = [
            first,
            *(replace(each, content=shortened[each.call_id]) if each.call_id in shortened else each for each in kept),
        ]
        self.bytes += sum(map(_bytes, self.messages)) - before


def content_for_model(result: ToolResult) -> str:
    """Return the text that the model gets for a result: a text as it is, everything else as JSON, either marked if it is suspicious."""
    return as_reply(result.content if result.error is None else {"error": asdict(result.error)})


def turns_of(messages: Sequence[Message]) -> list[Turn]:
    """Return the turns of a conversation, oldest first: everything after its first message."""
    turns: list[list[Message]] = []
    for message in messages[1:]:
        if message.role is MessageRole.ASSISTANT:
            turns.append([])
        turns[-1].append(message)
    return list(turns)


def _bytes(message: Message) -> int:
    arguments = sum(len(call.arguments.encode()) + len(call.name) for call in message.tool_calls)
    return len(message.content.encode()) + arguments
