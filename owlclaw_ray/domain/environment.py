"""Names of environment variables: which may be given to programs, and which never are."""

from __future__ import annotations

import re

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OF_THE_RUNTIME = re.compile(
    r"(?:OWLCLAW|LANGFUSE|HATCHET|RAY)_\w+"
    r"|(?:OPENAI|AZURE|AZURE_OPENAI|ANTHROPIC|GEMINI|GOOGLE|DEEPSEEK|MISTRAL|COHERE|CO|GROQ|OPENROUTER|TOGETHERAI|TOGETHER_AI|XAI"
    r"|DASHSCOPE|MOONSHOT|ZAI|ZHIPUAI|VOLCENGINE|MINIMAX|HUGGINGFACE|FIREWORKS|FIREWORKS_AI|PERPLEXITYAI|REPLICATE|CEREBRAS"
    r"|DEEPINFRA|NVIDIA_NIM|SAMBANOVA|DATABRICKS|VOYAGE|JINA_AI|LITELLM)_(?:API_)?(?:KEY|TOKEN|SECRET)"
    r"|HF_TOKEN|LITELLM_MASTER_KEY",
    re.IGNORECASE,
)
_OF_EVERY_PROGRAM = re.compile(
    r"PATH|HOME|TMPDIR|LANG|SHELL|IFS|ENV|BASH_ENV|SHELLOPTS|PROMPT_COMMAND|EDITOR|PAGER|(?:LD|DYLD|GIT)_\w+|(?:PYTHON|PERL5|RUBY)\w*"
    r"|NODE_(?:OPTIONS|PATH)|_?JAVA_(?:TOOL_)?OPTIONS",
    re.IGNORECASE,
)


def of_the_runtime(name: str) -> bool:
    """Return whether the variable is a secret or a setting of the runtime."""
    return _OF_THE_RUNTIME.fullmatch(name) is not None


def name_problem(name: str) -> str:
    """Return why programs cannot be given the variable, or nothing."""
    if not _NAME.fullmatch(name):
        return "is no name of a variable"
    if of_the_runtime(name):
        return "is a secret or a setting of the runtime, which tools never get"
    return ""


def value_problem(name: str) -> str:
    """Return why a value for the variable cannot come from a skill, or nothing: it must not decide what programs are run."""
    if _OF_EVERY_PROGRAM.fullmatch(name):
        return "decides how programs are found or run; a skill cannot set it"
    return name_problem(name)
