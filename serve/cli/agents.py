"""`owlclaw agents` and `reload`: what agents are."""

from __future__ import annotations

from typing import Annotated

import typer

from owlclaw_ray import wire
from owlclaw_ray.counting import counted
from serve.cli.connection import HERE, FolderOption, JsonOption, UrlOption, connect
from serve.cli.output import console, plain, print_json, shortened, table

_OUTCOME_WIDTH = 100
AgentArgument = Annotated[str, typer.Argument(help="definition or definition:key", metavar="AGENT")]


def register(cli: typer.Typer) -> None:
    """Add the commands."""
    cli.command()(agents)
    cli.command()(reload)


def agents(
    agent: Annotated[str | None, typer.Argument(help="Only this one, in full.", metavar="AGENT")] = None,
    *,
    url: UrlOption = None,
    folder: FolderOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """List agents, or show one."""
    with connect(url, folder) as client:
        if agent is not None:
            _show(client.agent(agent), as_json=as_json)
            return
        found = client.agents()
    if as_json:
        print_json(found)
        return
    rows = [(each["agent"], _model(each), str(each["runs"]), _state(each)) for each in found]
    table(("AGENT", "MODEL", "RUNS", "STATE"), rows, empty="there are no agents; make one with: owlclaw init")


def reload(
    agent: AgentArgument, *, url: UrlOption = None, folder: FolderOption = HERE, as_json: JsonOption = False
) -> None:
    """Have the running server read an agent's definition again: identity, settings and skills."""
    with connect(url, folder) as client:
        _show(client.reload(agent), as_json=as_json)


def _show(agent: wire.Agent, *, as_json: bool) -> None:
    if as_json:
        print_json(agent)
        return
    target = console()
    target.print(
        f"{agent['agent']} · {_model(agent)} · {agent['isolation']} · {counted(agent['runs'], 'run')} · {_state(agent)}"
    )
    for warning in agent["warnings"]:
        target.print(f"warning: {plain(warning)}", style="yellow")
    for outcome in agent["recent_outcomes"]:
        target.print(f"  {shortened(outcome, _OUTCOME_WIDTH)}", soft_wrap=True)
    if agent["recent_outcomes"]:
        target.print(f"owlclaw runs {agent['agent']} lists the runs, owlclaw runs RUN_ID shows one in full")


def _model(agent: wire.Agent) -> str:
    return f"{agent['model']} (no real LLM)" if agent["scripted"] else agent["model"]


def _state(agent: wire.Agent) -> str:
    if agent["problem"]:
        return f"broken: {agent['problem']}"
    queued = f", {agent['queued_runs']} queued" if agent["queued_runs"] else ""
    return (f"running {agent['running_run']}" if agent["running_run"] else "idle") + queued
