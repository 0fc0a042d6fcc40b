"""Warnings about what works, but not as its author meant: tools without a description, rules that match no tool, and names of tools
that do not exist, in scripts and IDENTITY.md.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from msgspec import Struct, field

from owlclaw_ray.app import OwlClaw
from owlclaw_ray.configuration.yaml_document import YamlDocument, read_yaml
from owlclaw_ray.definitions.loader import IDENTITY, agent_document
from owlclaw_ray.domain.agent import AgentDefinition
from owlclaw_ray.domain.permission import PermissionRules
from owlclaw_ray.domain.tool import AGENT, DANGEROUS, NETWORK, SENSITIVE, ToolDefinition
from owlclaw_ray.errors import ConfigurationError, Problem
from owlclaw_ray.ids import TenantId
from owlclaw_ray.models.scripted.templates import is_template
from owlclaw_ray.models.scripted.yaml_script import ScriptForm
from owlclaw_ray.settings import Settings, written_settings

_OFF = {"code": "tools.code.enabled", "agent": "tools.agents.enabled"}
"""The settings that turn on tools whose names begin so."""
_RUNTIME_TAGS = frozenset({DANGEROUS, NETWORK, SENSITIVE, AGENT})
"""Tags that mean something to the runtime, whether or not a tool has them yet."""
_SHOWN = 8
_DOTTED = re.compile(r"(?<![\w./@:-])[A-Za-z_]\w*(?:\.[\w-]+)+(?![\w/(@*])")
_FILE = re.compile(r".*\.(csv|html?|json|md|pdf|py|sql|toml|txt|xml|ya?ml)", re.IGNORECASE)


def added(tools: Iterable[ToolDefinition]) -> tuple[ToolDefinition, ...]:
    """Return the tools beside the runtime's own: those that an application, its packages and settings add."""
    return tuple(each for each in tools if each.tags.isdisjoint({"builtin", "internal"}))


class KnownNames(Struct, frozen=True):
    """The names that rules can be about."""

    tools: Mapping[str, ToolDefinition]
    states: Collection[str]
    servers: Collection[str]
    """MCP servers that are down, so that their tools are not known."""
    mcp_tools: Collection[str] = ()
    """Tools of the other MCP servers."""
    names: frozenset[str] = field(default_factory=frozenset)
    foreign: Collection[str] = ()
    """MCP servers that are not for the tenant in question."""

    @classmethod
    def of(
        cls, app: OwlClaw, tools: Iterable[ToolDefinition], settings: Settings, live: Mapping[str, Collection[str]]
    ) -> KnownNames:
        """Return what is known of an application; `live` has the tools of those MCP servers that are up."""
        by_name = {each.name: each for each in tools}
        servers = set(settings.mcp.servers) - live.keys()
        of_servers = {tool for server in live.values() for tool in server}
        return cls(by_name, app.registry.states(), servers, of_servers, frozenset(by_name) | of_servers)

    def of_tenant(self, tenant: TenantId, settings: Settings) -> KnownNames:
        """Return what there is of them for the agents of a tenant."""
        written = settings.mcp.servers.items()
        foreign = {name for name, each in written if each.tenants is not None and tenant not in each.tenants}
        tools = {name: each for name, each in self.tools.items() if each.is_for(tenant)}
        of_servers = {name for name in self.mcp_tools if name.split(".")[1] not in foreign}
        servers = set(self.servers) - foreign
        return KnownNames(tools, self.states, servers, of_servers, frozenset(tools) | of_servers, foreign)


class _PatternRule(Struct, frozen=True):
    """A pattern of a file, and where it stands."""

    document: YamlDocument
    path: tuple[str | int, ...]
    pattern: str


def tool_advice(
    app: OwlClaw, known: KnownNames, settings: Settings, definitions: Iterable[AgentDefinition]
) -> Iterator[Problem]:
    """Yield a problem for each tool without a description, for each rule that matches no tool or no state, and for each name of a
    tool that does not exist in an agent's script or IDENTITY.md. For the own definitions of a tenant there are its tools alone.

    Rules and names that may be about an MCP server that is down are skipped.
    """
    yield from app.registry.undocumented()
    try:
        shared = written_settings(settings.folder)
    except ConfigurationError:
        shared = YamlDocument("owlclaw.yaml", {})
    for rule in _permissions(shared, settings.permissions.rules):
        yield from _unused(rule, known)
    everything = known
    for definition in definitions:
        owner = Path(definition.folder).parent.name
        known = everything.of_tenant(TenantId(owner[1:]), settings) if owner.startswith("@") else everything
        document = agent_document(Path(definition.folder))
        rules = [
            *_permissions(document, definition.permissions.own),
            *_rules(document, ("tools", "allow"), definition.tools.allow),
            *_rules(document, ("tools", "deny"), definition.tools.deny),
            *(
                _PatternRule(document, ("tools", "limits", limit.tools), limit.tools)
                for limit in definition.governance.tool_limits
            ),
        ]
        for rule in rules:
            yield from _unused(rule, known)
        for key, patterns in (("allow", definition.states.allow), ("deny", definition.states.deny)):
            for rule in _rules(document, ("tools", "states", key), patterns):
                if rule.pattern != "*" and not any(fnmatchcase(state, rule.pattern) for state in known.states):
                    yield _problem(rule, "no state", known.states, "the application has no states")
        yield from _unknown_in_scripts(definition, known)
        yield from _unknown_in_identity(Path(definition.folder), known)


def _unknown_in_scripts(definition: AgentDefinition, known: KnownNames) -> Iterator[Problem]:
    """Yield a problem for each call of a script that names a tool that does not exist; names from templates are not known."""
    for model in definition.models:
        path = Path(definition.folder) / model.removeprefix("scripted:")
        if not model.startswith("scripted:") or path.suffix not in {".yaml", ".yml"}:
            continue
        try:
            document = read_yaml(path.read_text(encoding="utf-8"), f"{definition.name}/{path.name}")
            form = ScriptForm.model_validate(document.data)
        except (OSError, ValueError, ConfigurationError):
            continue  # what is wrong with the script itself is reported when it is loaded
        for number, rule in enumerate(form.rules):
            turns = [(("turns", index), turn) for index, turn in enumerate(rule.turns)]
            for place, turn in [*turns, *([(("then",), rule.then)] if rule.then else [])]:
                for index, call in enumerate(turn.tool_calls):
                    name = call.name.replace("__", ".")
                    if not is_template(name) and not _exists(name, known):
                        where = document.where(("rules", number, *place, "tool_calls", index, "name"))
                        yield Problem(where, f"calls {name!r}, a tool that does not exist", _instead(name, known))


def _unknown_in_identity(folder: Path, known: KnownNames) -> Iterator[Problem]:
    """Yield a problem for each dotted name of IDENTITY.md that looks like a tool's, and is none.

    It looks like one if it begins as tools here do, or its last part has an underscore; a file's name does not.
    """
    try:
        lines = (folder / IDENTITY).read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError):
        return
    beginnings = {"mcp", *_OFF, *(name.partition(".")[0] for name in known.names if "." in name)}
    for number, line in enumerate(lines, start=1):
        for name in _DOTTED.findall(line):
            likely = name.partition(".")[0] in beginnings or "_" in name.rpartition(".")[2]
            if likely and not _FILE.fullmatch(name) and not _exists(name, known):
                what = f"names {name!r}, a tool that does not exist"
                yield Problem(f"{folder.name}/{IDENTITY}:{number}", what, _instead(name, known))


def _exists(name: str, known: KnownNames) -> bool:
    return name in known.names or any(name.startswith(f"mcp.{server}.") for server in known.servers)


def _instead(name: str, known: KnownNames) -> str:
    same_end = sorted(each for each in known.names if each.rpartition(".")[2] == name.rpartition(".")[2])
    close = _nearest(name, known.names) or "".join(same_end[:1])
    tools = sorted(each for each in known.names if "." in each and not each.startswith("internal."))
    others = f"tools here: {', '.join(tools[:_SHOWN])}{' …' if len(tools) > _SHOWN else ''}" if tools else ""
    return f"did you mean {close}?" if close else _remedy(name, known, "name another tool") or others


def _permissions(document: YamlDocument, rules: PermissionRules) -> Iterator[_PatternRule]:
    for verdict in ("allow", "ask", "deny"):
        yield from _rules(document, ("permissions", verdict), getattr(rules, verdict))


def _rules(document: YamlDocument, path: tuple[str, ...], patterns: Sequence[str]) -> Iterator[_PatternRule]:
    return (_PatternRule(document, (*path, index), pattern) for index, pattern in enumerate(patterns))


def _unused(rule: _PatternRule, known: KnownNames) -> Iterator[Problem]:
    kind, colon, value = rule.pattern.partition(":")
    if colon and kind == "tag":
        tags = _RUNTIME_TAGS.union(*(each.tags for each in known.tools.values()))
        if value not in tags and not known.servers and not known.mcp_tools:
            yield _problem(rule, "no tool", {f"tag:{tag}" for tag in tags}, "")
    elif not colon and not any(fnmatchcase(name, rule.pattern) for name in known.names):
        literal = re.split(r"[*?\[]", rule.pattern, maxsplit=1)[0]
        beginnings = [f"mcp.{server}." for server in known.servers]
        if not any(
            literal.startswith(each) or (literal != rule.pattern and each.startswith(literal)) for each in beginnings
        ):
            yield _problem(rule, "no tool", known.names, _remedy(rule.pattern, known))


def _remedy(pattern: str, known: KnownNames, otherwise: str = "remove the rule") -> str:
    first, _, rest = pattern.partition(".")
    server = rest.partition(".")[0]
    if first == "mcp" and server in known.foreign:
        return f"mcp.servers.{server}.tenants of owlclaw.yaml does not name its tenant: add it there, or {otherwise}"
    if first == "mcp" and server:
        return f"owlclaw.yaml has no MCP server {server!r}: add it (mcp.servers), or {otherwise}"
    if first in _OFF and not any(name.startswith(f"{first}.") for name in known.names):
        return f"such tools are off: turn them on ({_OFF[first]} in owlclaw.yaml), or {otherwise}"
    return ""


def _problem(rule: _PatternRule, nothing: str, names: Collection[str], remedy: str) -> Problem:
    what = f"is {rule.pattern!r}, which matches {nothing}: the rule does nothing"
    close = _nearest(rule.pattern, names)
    listed = ", ".join(sorted(names)[:_SHOWN]) + (" …" if len(names) > _SHOWN else "")
    fix = f"did you mean {close}?" if close else remedy or f"name one of these, or remove the rule: {listed}"
    return Problem(rule.document.where(rule.path), what, fix)


def _nearest(pattern: str, names: Collection[str]) -> str:
    """Return the name that was meant, most likely: of its whole, or of its last part where the pattern has no dot."""
    written = {name if "." in pattern else name.rpartition(".")[2]: name for name in sorted(names)}
    close = difflib.get_close_matches(pattern, written, n=1, cutoff=0.7)
    return written[close[0]] if close else ""
