"""Names of the product: a class name means one thing, a module is called by a noun, and the glossary leads to types that exist.

The tables list what is not so yet. They only shrink: a test fails for what is missing in them, and for what is in them without need.
"""

import ast
import re
from collections import defaultdict
from pathlib import PurePosixPath

from tests.docs.snippets import ROOT

MIRROR = "owlclaw_ray/wire.py"
"""Says how the facts look in JSON, under their names."""

CLASSES_OF_ONE_NAME = {
    "Agents": ("owlclaw_ray/tools/agents/api.py", "serve/agents.py"),
    "Answer": (
        "owlclaw_ray/models/reply_box.py",
        "owlclaw_ray/testing/openai_server.py",
        "owlclaw_ray/tools/builtin/contract.py",
    ),
    "Approvals": ("owlclaw_ray/runs/run_loop.py", "serve/approvals.py"),
    "Arguments": ("owlclaw_ray/tools/arguments.py", "owlclaw_ray/tools/builtin/arguments.py"),
    "CancelSchedule": ("owlclaw_ray/store/api.py", "owlclaw_ray/tools/builtin/arguments.py"),
    "Change": ("owlclaw_ray/tools/hooks.py", "serve/cli/numbers.py"),
    "Content": ("owlclaw_ray/telemetry/tracing/content.py", "owlclaw_ray/webhooks/mapping.py"),
    "Declaration": ("owlclaw_ray/tools/agents/toolset.py", "owlclaw_ray/tools/builtin/contract.py"),
    "Failure": ("owlclaw_ray/store/sql/failures.py", "owlclaw_ray/testing/openai_server.py"),
    "Finding": ("owlclaw_ray/models/sanitise.py", "serve/cli/findings.py"),
    "LedgerQuery": ("serve/cli/ledger_source.py", "serve/ledger.py"),
    "LiveTools": ("owlclaw_ray/tools/adapter.py", "owlclaw_ray/tools/mcp/live_tools.py"),
    "Metrics": ("owlclaw_ray/telemetry/metrics/api.py", "serve/metrics.py"),
    "Patience": ("owlclaw_ray/memory/embedding.py", "owlclaw_ray/schedules/hatchet/supervision.py"),
    "Pulse": ("owlclaw_ray/domain/heartbeat.py", "serve/streams.py"),
    "Recall": ("owlclaw_ray/domain/memory.py", "owlclaw_ray/tools/builtin/arguments.py"),
    "Role": (
        "owlclaw_ray/domain/lineage.py",
        "owlclaw_ray/domain/model.py",
        "owlclaw_ray/tools/declarative/commands.py",
    ),
    "Room": ("owlclaw_ray/kernel/batcher.py", "owlclaw_ray/runs/compaction.py"),
    "Schedules": ("owlclaw_ray/schedules/api.py", "serve/schedules.py"),
    "Step": ("owlclaw_ray/domain/task.py", "serve/shutdown.py"),
    "Whereabouts": ("actors/remote.py", "owlclaw_ray/configuration/server_location.py"),
    "_Form": ("owlclaw_ray/ledger/redaction.py", "owlclaw_ray/models/scripted/yaml_form.py"),
    "_Known": ("owlclaw_ray/memory/file.py", "owlclaw_ray/tools/mcp/adapter.py"),
    "_Rule": ("owlclaw_ray/models/scripted/yaml_script.py", "serve/problems.py", "serve/tool_advice.py"),
}
NOUNS = frozenset(
    [
        "batching",
        "counting",
        "docstring",
        "embedding",
        "mapping",
        "naming",
        "packing",
        "routing",
        "scheduling",
        "signing",
        "tracing",
    ]
)
"""Nouns of the field that end like participles."""
PARTICIPLES = frozenset(
    {
        "actors/redactors.py",
        "owlclaw_ray/client/blocking.py",
        "owlclaw_ray/client/callbacks.py",
        "owlclaw_ray/definitions/loader.py",
        "owlclaw_ray/definitions/skills/loader.py",
        "owlclaw_ray/memory/restore.py",
        "owlclaw_ray/memory/replacement.py",
        "owlclaw_ray/placement/table.py",
        "owlclaw_ray/policy/governance.py",
        "owlclaw_ray/policy/static_visibility.py",
        "owlclaw_ray/runs/truncation.py",
        "owlclaw_ray/runs/token_limits.py",
        "owlclaw_ray/runs/memory_preload.py",
        "owlclaw_ray/schedules/firings.py",
        "owlclaw_ray/store/followers.py",
        "owlclaw_ray/store/sql/batch.py",
        "owlclaw_ray/store/sql/approvals.py",
        "owlclaw_ray/store/sql/waits.py",
        "owlclaw_ray/store/sql/budgets.py",
        "owlclaw_ray/store/sql/cancellation.py",
        "owlclaw_ray/store/sql/loader.py",
        "owlclaw_ray/store/sql/migrator.py",
        "owlclaw_ray/store/sql/factory.py",
        "owlclaw_ray/store/sql/queries.py",
        "owlclaw_ray/store/sql/run_lifecycle.py",
        "owlclaw_ray/store/sql/submission.py",
        "owlclaw_ray/store/sql/writer.py",
        "owlclaw_ray/tools/agents/inspection.py",
        "owlclaw_ray/tools/agents/spawn.py",
        "owlclaw_ray/tools/builtin/observation.py",
        "owlclaw_ray/tools/code/matchers.py",
        "owlclaw_ray/tools/code/replacement.py",
        "owlclaw_ray/tools/declarative/loader.py",
        "owlclaw_ray/tools/mcp/server_tools.py",
        "owlclaw_ray/tools/mcp/tool_screen.py",
        "serve/cli/follow.py",
        "serve/cli/listings.py",
        "serve/cli/probe.py",
        "serve/runtime_plan.py",
        "serve/shutdown.py",
        "serve/run_wait.py",
    }
)
_ROW = re.compile(r"^\| ([^|]+) \| [^|]+ \| `(\w+)` in `([\w/.]+)` \|$", re.MULTILINE)


def product():
    """Return the syntax of all modules of the product by their paths."""
    files = (file for package in ("owlclaw_ray", "actors", "serve") for file in (ROOT / package).rglob("*.py"))
    return {file.relative_to(ROOT).as_posix(): ast.parse(file.read_text(encoding="utf-8")) for file in files}


def test_a_class_name_exists_once():
    places = defaultdict(list)
    for path, tree in product().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and path != MIRROR:
                places[node.name].append(path)
    assert {name: tuple(sorted(found)) for name, found in places.items() if len(found) > 1} == CLASSES_OF_ONE_NAME


def test_modules_are_called_by_nouns():
    paths = [PurePosixPath(path) for path in product()]
    assert {str(path) for path in paths if path.stem.endswith("ing") and path.stem not in NOUNS} == PARTICIPLES
    assert {path.stem for path in paths} >= NOUNS


def test_every_term_of_the_glossary_is_in_the_code_where_it_says_and_terms_are_in_it_once():
    text = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
    rows, trees = _ROW.findall(text), product()
    assert len(rows) == sum(line.startswith("| ") and not line.startswith("| term ") for line in text.splitlines())
    missing = [(name, path) for _, name, path in rows if path not in trees or name not in _names(trees[path])]
    assert not missing
    terms = [term for term, _, _ in rows]
    assert len(terms) == len({*terms})


def _names(tree):
    assigned = (target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets)
    return {getattr(each, "name", None) or getattr(each, "id", None) for each in [*tree.body, *assigned]}
