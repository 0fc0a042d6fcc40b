"""What is broken, one thing at a time, to see that the tests of the correctness properties notice."""

from __future__ import annotations

from dataclasses import dataclass

PROPERTIES = range(1, 24)


@dataclass(frozen=True)
class Mutant:
    """A change of the product that breaks what a property protects."""

    number: int
    """Of the property, as the requirements count them."""
    breaks: str
    file: str
    text: str
    """What is there, once."""
    becomes: str
    tests: tuple[str, ...]
    """The files with tests of the property."""

    @property
    def selector(self) -> str:
        """What chooses the property's tests."""
        return f"property_{self.number:02}"


_RUNS = ("tests/runs/test_properties.py",)
_PRODUCT = ("tests/runs/test_product_properties.py",)
_LOADING = ("tests/definitions/test_loader.py",)
_BEATS = ("tests/runs/test_heartbeat.py",)

MUTANTS = (
    Mutant(
        1,
        "the prompt leaves the identity out",
        "owlclaw_ray/runs/prompt.py",
        '("Your identity", definition.soul),',
        "",
        _LOADING,
    ),
    Mutant(
        1,
        "the prompt leaves the capabilities out",
        "owlclaw_ray/runs/prompt.py",
        '("Your capabilities", definition.capabilities),',
        "",
        _LOADING,
    ),
    Mutant(
        2,
        "an empty identity is taken",
        "owlclaw_ray/definitions/loader.py",
        "if content is not None and not text:",
        "if False:",
        _LOADING,
    ),
    Mutant(
        2,
        "a missing identity is taken",
        "owlclaw_ray/definitions/loader.py",
        "        if required:\n",
        "        if False:\n",
        _LOADING,
    ),
    Mutant(
        3,
        "a reload reads nothing",
        "owlclaw_ray/definitions/folder.py",
        "self._reloads += 1",
        "self._reloads += 0",
        _PRODUCT,
    ),
    Mutant(
        3,
        "runs do not ask for the definition as it is now",
        "owlclaw_ray/definitions/folder.py",
        "if cached is None or cached.fingerprint != fingerprint or cached.reloads != reloads:",
        "if cached is None:",
        (*_PRODUCT, "tests/definitions/test_folder.py"),
    ),
    Mutant(
        4,
        "a text of any length is taken for one that fits",
        "owlclaw_ray/runs/token_limits.py",
        "if _fits_quickly(whole, limit) or whole == least:",
        "if True:",
        ("tests/runs/test_token_limits.py",),
    ),
    Mutant(
        4,
        "no conversation is compacted",
        "owlclaw_ray/runs/compaction.py",
        "if conversation.bytes + _CALL_TOKENS * (len(conversation.messages) + 2) <= room.tokens:",
        "if True:",
        ("tests/runs/test_context_window.py",),
    ),
    Mutant(
        5,
        "of turns that were dropped nothing is shown",
        "owlclaw_ray/runs/compaction.py",
        "for first in range(len(lines)):",
        "for first in range(0):",
        _PRODUCT,
    ),
    Mutant(
        5,
        "the records of turns that were dropped are empty",
        "owlclaw_ray/runs/compaction.py",
        "returned = {each.call_id: cut_text(text_of_reply(each.content), _DETAIL) for each in results}",
        "returned = {}",
        _PRODUCT,
    ),
    Mutant(
        5,
        "the newest turns are dropped instead of the oldest",
        "owlclaw_ray/runs/compaction.py",
        "return kept[::-1]",
        "return list(turns[: len(kept)])",
        ("tests/runs/test_context_window.py", *_PRODUCT),
    ),
    Mutant(
        6,
        "recall ignores its query",
        "owlclaw_ray/tools/builtin/memory.py",
        "found = search(caller.agent, arguments.query,",
        'found = search(caller.agent, "kept",',
        _PRODUCT,
    ),
    Mutant(
        6,
        "recall ignores the vectors",
        "owlclaw_ray/memory/fusion.py",
        "meaning = {memory_id: 1.0 - (high - score) / spread for memory_id, score in hits.cosine.items()}",
        "meaning = dict[MemoryId, float]()",
        _PRODUCT,
    ),
    Mutant(
        6,
        "what is remembered loses its tags",
        "owlclaw_ray/tools/builtin/memory.py",
        "tags=tuple(dict.fromkeys(arguments.tags)),",
        "tags=(),",
        _PRODUCT,
    ),
    Mutant(
        7,
        "what is found is in the order of its age alone",
        "owlclaw_ray/memory/fusion.py",
        "return -round(score, 9), -memory.created_at.timestamp(), memory.memory_id",
        "return 0.0, -memory.created_at.timestamp(), memory.memory_id",
        ("tests/memory/test_ranking.py",),
    ),
    Mutant(
        8,
        "nothing is archived",
        "owlclaw_ray/memory/file.py",
        "if size <= limits.size and surplus <= 0:",
        "if True:",
        ("tests/memory/test_file.py",),
    ),
    Mutant(
        8,
        "what is archived is lost",
        "owlclaw_ray/memory/file.py",
        "if chosen & self._archive.ids() or not self._archive.append_unread(moved):",
        "if False:",
        ("tests/memory/test_file.py",),
    ),
    Mutant(
        9,
        "nobody is told of a broken skill",
        "owlclaw_ray/definitions/skills/loader.py",
        'warnings += [f"{problem}; the skill is skipped" for problem in error.problems]',
        "continue",
        ("tests/definitions/skills/test_loader.py",),
    ),
    Mutant(
        10,
        "skills of any length are read",
        "owlclaw_ray/runs/skill_selection.py",
        "if skill.tokens <= left and skill.name not in withheld:",
        "if skill.name not in withheld:",
        ("tests/runs/test_skill_selection.py",),
    ),
    Mutant(
        11,
        "a run may make any number of calls",
        "owlclaw_ray/runs/run_loop.py",
        "allowed = max(0, self._limits.tool_calls - conversation.calls_before)",
        "allowed = 10**9",
        _RUNS,
    ),
    Mutant(
        11,
        "nobody is warned of a run that was terminated",
        "owlclaw_ray/runs/run_loop.py",
        'self._journal.audit(LedgerKind.WARNING, key, {"what": what, "why": why, **details})',
        "pass",
        _RUNS,
    ),
    Mutant(
        12,
        "a model may take any time",
        "owlclaw_ray/models/model_gateway.py",
        "async with deadline(self._clock, request.timeout):",
        "async with deadline(self._clock, 10**6):",
        _RUNS,
    ),
    Mutant(
        12,
        "what a model call ended with is not recorded",
        "owlclaw_ray/runs/run_loop.py",
        'journal.audit(LedgerKind.MODEL_CALL, f"failed-{self._conversation.turns}", record)',
        "pass",
        _RUNS,
    ),
    Mutant(
        13,
        "hidden tools are offered",
        "owlclaw_ray/policy/visibility.py",
        "visible = tuple(tool for tool in tools if tool not in reasons)",
        "visible = tuple(tools)",
        _RUNS,
    ),
    Mutant(
        13,
        "the ledger does not say what is hidden",
        "owlclaw_ray/domain/entries.py",
        '"hidden": to_builtins(list(hidden))}',
        '"hidden": []}',
        _RUNS,
    ),
    Mutant(
        13,
        "nobody asks the rules of a definition",
        "owlclaw_ray/policy/visibility.py",
        "if not asked:",
        "if True:",
        _RUNS,
    ),
    Mutant(
        14,
        "a heartbeat without events wakes the agent",
        "owlclaw_ray/runs/heartbeat.py",
        "if not inbox and not others:",
        "if False:",
        _BEATS,
    ),
    Mutant(
        15,
        "no heartbeat wakes the agent",
        "owlclaw_ray/runs/heartbeat.py",
        "if not inbox and not others:",
        "if True:",
        _BEATS,
    ),
    Mutant(
        16,
        "a run may take any time",
        "owlclaw_ray/kernel/deadline.py",
        "if self.used >= self._limit - _INSTANT:",
        "if False:",
        _RUNS,
    ),
    Mutant(
        17,
        "a ring that fails is not tried again",
        "owlclaw_ray/schedules/hatchet/worker.py",
        "retries=_RETRIES,",
        "retries=0,",
        ("tests/schedules/hatchet/test_worker.py",),
    ),
    Mutant(
        18,
        "the ledger has no tokens of replies",
        "owlclaw_ray/domain/entries.py",
        '"usage": asdict(reply.usage),',
        '"usage": {**asdict(reply.usage), "completion_tokens": 0},',
        _RUNS,
    ),
    Mutant(
        19,
        "a trace leaves its model calls out",
        "owlclaw_ray/telemetry/tracing/spans.py",
        "return (self._root(), *self._model_calls(), *self._tool_calls(),",
        "return (self._root(), *self._tool_calls(),",
        _RUNS,
    ),
    Mutant(
        19,
        "a trace does not say of what kind its trigger was",
        "owlclaw_ray/telemetry/tracing/spans.py",
        "name.TRIGGER_KIND: trigger.kind.value,",
        "",
        _RUNS,
    ),
    Mutant(
        20,
        "without an index recall fails",
        "owlclaw_ray/memory/lance/store.py",
        "hits, problem = SearchHits({}, {}), str(error)",
        "raise",
        ("tests/memory/lance/test_damage.py",),
    ),
    Mutant(
        20,
        "without an index nothing is found",
        "owlclaw_ray/memory/lance/store.py",
        "hits = SearchHits(lexical.search(query, tuple(among.values())), {})",
        "hits = SearchHits({}, {})",
        ("tests/memory/lance/test_damage.py",),
    ),
    Mutant(
        21,
        "what a tool raises is not told",
        "owlclaw_ray/tools/executor.py",
        'return _failed(invocation, "execution_failed", _told(error), retryable=retryable)',
        'return _failed(invocation, "execution_failed", "", retryable=retryable)',
        ("tests/tools/test_executor.py",),
    ),
    Mutant(
        21,
        "the model sees a tool that failed as one that returned nothing",
        "owlclaw_ray/runs/conversation.py",
        'return as_reply(result.content if result.error is None else {"error": asdict(result.error)})',
        "return as_reply(result.content)",
        _RUNS,
    ),
    Mutant(
        22,
        "negative seconds are taken",
        "owlclaw_ray/configuration/limits.py",
        "Annotated[float, Field(gt=0, allow_inf_nan=False)]",
        "Annotated[float, Field(allow_inf_nan=False)]",
        ("tests/test_settings.py",),
    ),
    Mutant(
        22,
        "endless seconds are taken",
        "owlclaw_ray/configuration/limits.py",
        "Annotated[float, Field(gt=0, allow_inf_nan=False)]",
        "Annotated[float, Field(gt=0)]",
        ("tests/test_settings.py",),
    ),
    Mutant(
        23,
        "hidden characters stay",
        "owlclaw_ray/models/sanitise.py",
        'return _INVISIBLE.sub(_flag_or_nothing, text.replace("\\r\\n", "\\n").replace("\\r", "\\n"))',
        'return text.replace("\\r\\n", "\\n").replace("\\r", "\\n")',
        ("tests/models/test_sanitise.py",),
    ),
    Mutant(
        23,
        "instructions in files are not marked",
        "owlclaw_ray/models/sanitise.py",
        "marked = [(found.start(), found.end()) for found in _attempts(text)]",
        "marked = list[tuple[int, int]]()",
        ("tests/models/test_sanitise.py",),
    ),
)
