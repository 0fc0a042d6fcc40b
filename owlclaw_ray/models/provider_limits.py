"""Which models can be given which tools (tool-registry: a schema that the model cannot take fails the run before it is asked).

KNOWN_LIMITS is what providers answer with an error, or misread, although litellm stands between. litellm itself drops for Gemini
what Gemini refuses (additionalProperties, exclusive bounds, multipleOf, formats, enums of numbers, empty properties): the
model gets less of the schema, the runtime checks the arguments all the same, and nothing has to be refused. Schemas go to OpenAI without
`strict`, so that its rules for strict schemas do not apply. Names fit all of them since registration.

- OpenAI, Azure, GitHub Copilot: "Invalid 'tools': array too long. Expected an array with maximum length 128"
  (julep-ai/julep issue 330, through litellm; zed-industries/zed 32946; anomalyco/opencode 4909).
- Azure: "Invalid 'tools[1].function.description': string too long. Expected a string with maximum length 1024"
  (langchain-ai/open_deep_research issue 80). OpenAI's own API has lifted that (run-llama/llama_index pull request 18784).
- Anthropic: "tools.14.custom.input_schema.properties: Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'", of the
  first level only (anthropics/claude-code issue 79418, decocms/studio pull request 6874).
- Gemini: "At most 512 function declarations can be specified" (google-gemini/gemini-cli issue 19083). litellm 1.106 gives an
  enum without a type the type object (`build_vertex_schema`), so that the model would send objects.
- Perplexity: litellm knows no parameter `tools` of it (`get_supported_openai_params`) and would leave them out silently.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

from owlclaw_ray.counting import counted
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.provider import ProviderLimits
from owlclaw_ray.domain.tool import ToolDefinition

KNOWN_LIMITS = (
    ProviderLimits(("azure/*",), tools=128, description_characters=1_024),
    ProviderLimits(("openai/*", "gpt-*", "chatgpt-*", "o[134]", "o[134]-*", "github_copilot/*"), tools=128),
    ProviderLimits(("anthropic/*", "claude-*", "vertex_ai/claude-*"), property_names=r"[a-zA-Z0-9_.-]{1,64}"),
    ProviderLimits(("gemini/*", "vertex_ai/gemini-*", "gemini-*"), tools=512, typed=True),
    ProviderLimits(("perplexity/*",), tools=0),
)
"""The first whose pattern matches holds for a model; others take everything."""


def problem_with(model: str, tools: Sequence[ToolDefinition], limits: Iterable[ProviderLimits]) -> str:
    """Return why a model cannot be given these tools: which tool, which keyword, and what would be right; or the empty text."""
    found = next((each for each in limits if any(fnmatchcase(model, pattern) for pattern in each.models)), None)
    if found is None or not tools:
        return ""
    problems = [(tool.name, *problem) for tool in tools for problem in _problems(tool, found)]
    if found.tools is not None and len(tools) > found.tools:
        most = "no tools" if found.tools == 0 else f"at most {counted(found.tools, 'tool')}"
        what = f"{model} takes {most}, and the agent sees {len(tools)}:"
    elif problems:
        tool, where, wrong = problems[0]
        others = len({name for name, *_ in problems}) - 1
        more = f" (and {counted(others, 'more tool')})" if others else ""
        what = f"{model} cannot take the tool {tool}{more}: {where} {wrong}: change it,"
    else:
        return ""
    return (
        f"{what} hide tools from the agent (tools.deny in agent.yaml), or choose another model. "
        "If the model takes it, say so under models.limits in owlclaw.yaml"
    )


def _problems(tool: ToolDefinition, limits: ProviderLimits) -> Iterator[tuple[str, str]]:
    """Yield where and what is wrong with a tool."""
    if limits.name_characters is not None and len(tool.wire_name) > limits.name_characters:
        yield "its name", f"has {len(tool.wire_name)} characters (a dot counts as two), {limits.name_characters} may be"
    if limits.description_characters is not None and len(tool.description) > limits.description_characters:
        yield "its description", f"has {len(tool.description)} characters, {limits.description_characters} may be"
    if limits.property_names:
        for name in tool.input_schema.get("properties", {}):
            if not re.fullmatch(limits.property_names, name):
                yield f"properties.{name}", f"has a name that does not match {limits.property_names}"
    for path, schema in _schemas(tool.input_schema, ""):
        for keyword in limits.refused:
            if keyword in schema:
                yield f"{path}{keyword}", f"is the keyword {keyword}, which it refuses"
        if limits.typed and "enum" in schema and "type" not in schema:
            yield f"{path}enum", "has no type beside it, which it needs"


def _schemas(schema: JsonObject, path: str) -> Iterator[tuple[str, JsonObject]]:
    """Yield the schema and those inside it, each with its path."""
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from _schemas(inner, f"{path}properties.{name}.")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from _schemas(schema[key], f"{path}{key}.")
