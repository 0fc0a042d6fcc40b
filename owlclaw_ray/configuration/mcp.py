"""The section `mcp` of owlclaw.yaml: which MCP servers there are (T21)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from owlclaw_ray.configuration.limits import Seconds
from owlclaw_ray.configuration.placeholders import has_stray_placeholder, names_in
from owlclaw_ray.configuration.section import CONFIDENTIAL, Headers, NonEmpty, Section, TenantIds
from owlclaw_ray.domain.secret import SECRET_NAME

_SERVER = re.compile(r"[a-z][a-z0-9]*(?:[_-][a-z0-9]+)*")
_SERVER_LENGTH = 24
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TAG = re.compile(r"[a-z][a-z0-9_-]*")


def _tags(tags: tuple[str, ...]) -> tuple[str, ...]:
    wrong = [tag for tag in tags if not _TAG.fullmatch(tag)]
    if wrong:
        raise ValueError(f"has {wrong[0]!r}: a tag is a word in small letters, such as network")
    return tags


class McpToolFile(Section):
    """Settings of some of a server's tools, in the place of what the server says of them."""

    enabled: bool = True
    permission: Literal["readonly", "write"] | None = None
    effect: Literal["pure", "idempotent", "once"] | None = None
    tags: tuple[NonEmpty, ...] = ()
    timeout_seconds: Seconds | None = None

    _tags_are_words = field_validator("tags")(_tags)


class McpServerFile(Section):
    """One server: a program, or an address."""

    command: NonEmpty | None = None
    args: Annotated[tuple[str, ...], CONFIDENTIAL] = ()
    env: Annotated[dict[str, str], CONFIDENTIAL] = Field(default_factory=dict)
    """Beside PATH, HOME, TMPDIR and LANG; `${NAME}` in a value is a variable of the runtime."""
    folder: Path | None = None
    """Where the program runs; none: the folder of owlclaw.yaml."""
    url: NonEmpty | None = None
    headers: Headers = Field(default_factory=dict)
    secret_headers: Headers = Field(default_factory=dict)
    """`${NAME}` in a value is a secret of the tenant whose agent calls."""
    annotations: Literal["distrust", "trust"] = "distrust"
    """Whether a server is believed that a tool only reads, or may be repeated."""
    tags: tuple[NonEmpty, ...] = ()
    timeout_seconds: Seconds | None = None
    tenants: TenantIds | None = None
    """Whose agents have its tools; none: those of all tenants."""
    tools: dict[NonEmpty, McpToolFile] = Field(default_factory=dict)
    """By patterns of the names that the server gives its tools: the very name goes first, then the first pattern that fits."""

    _tags_are_words = field_validator("tags")(_tags)

    @field_validator("args")
    @classmethod
    def _no_secrets(cls, args: tuple[str, ...]) -> tuple[str, ...]:
        if any("${" in arg for arg in args):
            raise ValueError(
                "has ${…}: everybody on the machine can read arguments; give the server variables with env"
            )
        return args

    @field_validator("env")
    @classmethod
    def _variables(cls, env: dict[str, str]) -> dict[str, str]:
        for name, value in env.items():
            if not _VARIABLE.fullmatch(name):
                raise ValueError(f"has {name!r}, which is no name of a variable")
            if has_stray_placeholder(value):
                raise ValueError(f"has a ${{ in {name} that names no variable: write ${{NAME}}")
        return env

    @field_validator("url")
    @classmethod
    def _address(cls, url: str | None) -> str | None:
        if url is None:
            return None
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.netloc or has_stray_placeholder(url):
            shown = f"{parts.scheme}://…" if parts.scheme else repr(url)
            raise ValueError(f"is {shown}: write it as https://host/path")
        if parts.username or parts.password:
            raise ValueError("has a user or a password: use headers, such as Authorization: 'Basic ${NAME}'")
        return url

    @field_validator("secret_headers")
    @classmethod
    def _have_secrets(cls, headers: dict[str, str]) -> dict[str, str]:
        for name, value in headers.items():
            if not names_in(value):
                raise ValueError(f"has {name} without a secret: write ${{NAME}}, or put it into headers")
            wrong = [each for each in names_in(value) if not SECRET_NAME.fullmatch(each)]
            if wrong:
                raise ValueError(f"has {wrong[0]!r} in {name}, which is no name of a secret")
        return headers

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError("needs either command, for a program, or url, for a server over HTTP")
        given = self.model_fields_set & (
            {"headers", "secret_headers"} if self.url is None else {"args", "env", "folder"}
        )
        if given:
            ways = ("command", "url") if self.url is None else ("url", "command")
            raise ValueError(f"has {ways[0]} and {', '.join(sorted(given))}, which goes with {ways[1]}")
        return self

    def variables(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yield the variables of the runtime that it needs, each with the place below this section that names it."""
        for key, pairs in (("env", self.env), ("headers", self.headers)):
            for name, value in pairs.items():
                yield from (((key, name), variable) for variable in names_in(value))
        yield from ((("url",), variable) for variable in names_in(self.url or ""))


class McpSettings(Section):
    """MCP servers."""

    servers: dict[str, McpServerFile] = Field(default_factory=dict)
    """By the name that their tools have here: `mcp.<server>.<tool>`."""
    connect_seconds: Seconds = 20.0
    """How long a server may take to be ready, and for a sign of life."""
    health_seconds: Seconds = 30.0
    backoff_seconds: Seconds = 0.5
    backoff_limit_seconds: Seconds = 30.0
    idle_seconds: Seconds | None = None

    @field_validator("servers")
    @classmethod
    def _names(cls, servers: dict[str, McpServerFile]) -> dict[str, McpServerFile]:
        for name in servers:
            if not _SERVER.fullmatch(name) or len(name) > _SERVER_LENGTH:
                raise ValueError(
                    f"has {name!r}: a server's name has at most {_SERVER_LENGTH} small letters and digits, "
                    "with '-' or '_' between them, such as web_search"
                )
        return servers
