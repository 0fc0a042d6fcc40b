"""`owlclaw mcp list`: the MCP servers, their state, and their tools."""

from __future__ import annotations

import typer

from serve.cli.connection import HERE, FolderOption, JsonOption, UrlOption, connect
from serve.cli.output import console, plain, print_json, table, when


def register(cli: typer.Typer) -> None:
    """Add the commands."""
    mcp = typer.Typer(no_args_is_help=True, help="MCP servers and their tools.")
    mcp.command("list")(list_servers)
    cli.add_typer(mcp, name="mcp")


def list_servers(*, url: UrlOption = None, folder: FolderOption = HERE, as_json: JsonOption = False) -> None:
    """List the servers with their state, problems and tools."""
    with connect(url, folder) as client:
        found = client.mcp_servers()
    if as_json:
        print_json(found)
        return
    rows = [
        (
            each["name"],
            each["transport"],
            each["target"],
            each["state"],
            when(each["since"]),
            str(len(each["tools"])),
            f"{each['calls']:,} ended, {each['running']} running",
        )
        for each in found
    ]
    empty = "there are no MCP servers; name one in owlclaw.yaml: mcp.servers"
    table(("SERVER", "TRANSPORT", "TARGET", "STATE", "SINCE", "TOOLS", "CALLS"), rows, empty=empty)
    show = console().print
    for server in found:
        if server["problem"]:
            show(f"\n{server['name']}: {plain(server['problem'])}")
        if server["tenants"]:
            show(f"\n{server['name']} is for the tenants {', '.join(server['tenants'])}")
        for tool in server["tools"]:
            show(f"  {tool}")
        for left_out in server["left_out"]:
            show(f"  left out: {plain(left_out['tool'])}: {plain(left_out['why'])}")
