"""A project with files in it, and the code tools that work on it."""

import json

import pytest
from msgspec.structs import replace

from owlclaw_ray import AgentRef
from owlclaw_ray.domain.tool import Effect, ToolClass
from owlclaw_ray.domain.tool_call import Stage, ToolInvocation
from owlclaw_ray.domain.trigger import TriggerKind
from owlclaw_ray.ids import RunId, ToolCallId
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.tools.code.options import CodeOptions
from owlclaw_ray.tools.code.toolset import CodeTools
from owlclaw_ray.tools.executor import LocalExecutor
from owlclaw_ray.tools.sources import ToolSources


def invocation(tool, arguments, timeout=20.0):
    return ToolInvocation(
        call_id=ToolCallId("call_1"),
        tool=tool,
        arguments=json.dumps(arguments),
        agent=AgentRef.parse("coder"),
        run_id=RunId("run_1"),
        trigger=TriggerKind.API,
        effect=Effect.PURE,
        tool_class=ToolClass.ALONE,
        timeout=timeout,
        idempotency_key="key",
    )


class Project:
    """A folder, its neighbours, and calls of the code tools."""

    def __init__(self, tmp_path):
        self.home, self.folder, self.outside = tmp_path / "home", tmp_path / "project", tmp_path / "outside"
        for each in (self.home, self.folder, self.outside):
            each.mkdir(parents=True)
        self.options = CodeOptions(project=str(self.folder))
        self._made = {}
        self.environ = {"PATH": "/usr/bin:/bin", "HOME": str(self.home)}

    def allow(self, **changes):
        self.options = replace(self.options, **changes)
        return self

    @property
    def tools(self):
        key = (self.options, tuple(self.environ.items()))
        if key not in self._made:
            self._made = {key: CodeTools(self.options, self.environ)}
        return self._made[key]

    def outcome(self, tool, timeout=20.0, stage=Stage.RUN, target="", **arguments):
        executor = LocalExecutor(ToolSources([self.tools]), ManualClock())
        call = replace(invocation(f"code.{tool}", arguments, timeout), stage=stage, approved_target=target)
        return executor.run_one(call)

    def check(self, tool, **arguments):
        return self.outcome(tool, stage=Stage.CHECK, **arguments)

    def approved(self, tool, target="", **arguments):
        return self.outcome(tool, stage=Stage.APPROVED, target=target, **arguments)

    def result(self, tool, timeout=20.0, **arguments):
        return self.outcome(tool, timeout, **arguments).result

    def call(self, tool, **arguments):
        result = self.result(tool, **arguments)
        assert result.error is None, result.error
        return result.content

    def error(self, tool, timeout=20.0, **arguments):
        result = self.result(tool, timeout, **arguments)
        assert result.error is not None, result.content
        return result.error

    def write(self, path, content):
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content if isinstance(content, bytes) else content.encode())
        return target


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A project for many examples of one property."""
    return Project(tmp_path_factory.mktemp("shared"))


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path)
