"""A definition and its rules, without an engine around them."""

from owlclaw_ray.domain.agent import AgentDefinition, AgentRef, AgentState, ModelChoice
from owlclaw_ray.domain.governance import CallOutcome, Governance
from owlclaw_ray.domain.tool import Effect, Permission, ToolDefinition
from owlclaw_ray.governance.governor import DefinitionGovernor
from owlclaw_ray.ids import ToolCallId
from owlclaw_ray.testing.clock import ManualClock

AGENT = AgentRef.parse("trader:AAPL")


def tool(name, *tags):
    return ToolDefinition(name, name, {"type": "object"}, Permission.WRITE, Effect.PURE, tags=frozenset(tags))


def definition(governance):
    return AgentDefinition("trader", "1", "", "Be calm.", "- trade", "", ModelChoice(("m",)), governance=governance)


class Rules:
    """The rules of one agent's runs, one after another, on a clock that a test moves."""

    def __init__(self, governance=None, *tools, clock=None):
        self.clock = clock or ManualClock()
        self.tools = {each.name: each for each in tools}
        self.definition = definition(governance or Governance())
        self._governor = DefinitionGovernor(tools, self.clock)
        self.state, self.outcomes = AgentState(), []
        self.resume()

    @property
    def now(self):
        return self.clock.now().timestamp()

    def resume(self):
        """Have another activation take the run over."""
        self.run = self._governor.rules(AGENT, self.definition, self.state, self.outcomes)

    def next_run(self):
        """End the run and begin another, the state saved in between."""
        self.state, self.outcomes = self.run.kept(self.state), []
        self.resume()

    async def visible(self):
        return await self.run.decide(sorted(self.tools))

    async def reasons(self):
        return {tool: (each.by, each.reason) for each in (await self.visible()).hidden for tool in each.tools}

    def begin(self, name, call_id="c"):
        """Return the error type of the refusal, or the empty text."""
        refused = self.run.admit(self.tools[name], ToolCallId(call_id))
        return refused.type if refused else ""

    def end(self, name, error="", call_id="c"):
        self.outcomes.append(CallOutcome(name, call_id, error, self.now))

    def call(self, name, error="", call_id="c"):
        refused = self.begin(name, call_id)
        self.end(name, refused or error, call_id)
        return refused
