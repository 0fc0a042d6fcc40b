"""The environment of the programs that tools start: what is allowed by name, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

ALWAYS = ("PATH", "HOME", "TMPDIR", "LANG")
"""What every program gets, where it is set."""
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OF_THE_RUNTIME = re.compile(
    r"(?:OWLCLAW|LANGFUSE|HATCHET|RAY)_\w+"
    r"|(?:OPENAI|AZURE|AZURE_OPENAI|ANTHROPIC|GEMINI|GOOGLE|DEEPSEEK|MISTRAL|COHERE|CO|GROQ|OPENROUTER|TOGETHERAI|TOGETHER_AI|XAI"
    r"|DASHSCOPE|MOONSHOT|ZAI|ZHIPUAI|VOLCENGINE|MINIMAX|HUGGINGFACE|FIREWORKS|FIREWORKS_AI|PERPLEXITYAI|REPLICATE|CEREBRAS"
    r"|DEEPINFRA|NVIDIA_NIM|SAMBANOVA|DATABRICKS|VOYAGE|JINA_AI|LITELLM)_(?:API_)?(?:KEY|TOKEN|SECRET)"
    r"|HF_TOKEN|LITELLM_MASTER_KEY",
    re.IGNORECASE,
)


def child_environment(environ: Mapping[str, str], allowed: Iterable[str]) -> dict[str, str]:
    """Return the variables of `environ` that a program may see: ALWAYS and the allowed ones, never the runtime's own secrets."""
    names = [name for name in (*ALWAYS, *allowed) if not _OF_THE_RUNTIME.fullmatch(name)]
    return {"PATH": _DEFAULT_PATH} | {name: environ[name] for name in names if name in environ}


def name_problem(name: str) -> str:
    """Return why a variable cannot be allowed, or nothing."""
    if not _NAME.fullmatch(name):
        return "is no name of a variable"
    if _OF_THE_RUNTIME.fullmatch(name):
        return "is a secret or a setting of the runtime, which tools never get"
    return ""
