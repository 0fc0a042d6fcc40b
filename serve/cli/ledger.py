"""`owlclaw ledger query`, `verify` and `export`."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Annotated, get_args

import orjson
import typer

from owlclaw_ray import wire
from owlclaw_ray.counting import counted
from serve.cli.connection import HERE, FolderOption, JsonOption, UrlOption
from serve.cli.ledger_files import LedgerFormat, check, whole_file, write
from serve.cli.ledger_lines import line
from serve.cli.ledger_source import LedgerSelection, ledger_source, pages
from serve.cli.listings import SinceOption, UntilOption, moment_of
from serve.cli.output import complain, console, print_json, table, when

_EXPORT_PAGE = 2_000

AgentOption = Annotated[str | None, typer.Option("--agent", help="Only this agent's.")]
RunOption = Annotated[str | None, typer.Option("--run", help="Only this run's.")]
KindOption = Annotated[str | None, typer.Option("--kind", "--type", help="Only records of this kind.")]
ToolOption = Annotated[str | None, typer.Option("--tool", help="Only records of this tool.")]


def register(cli: typer.Typer) -> None:
    """Add the commands."""
    ledger = typer.Typer(
        no_args_is_help=True, help="Read audit records, verify that none was tampered with, export them."
    )
    ledger.command()(query)
    ledger.command()(heads)
    ledger.command()(verify)
    ledger.command()(export)
    cli.add_typer(ledger, name="ledger")


def query(
    *,
    agent: AgentOption = None,
    run: RunOption = None,
    kind: KindOption = None,
    tool: ToolOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="At most so many.")] = 100,
    after: Annotated[
        str | None, typer.Option("--after", help="Continue after this place: the `next_after` of the page before.")
    ] = None,
    url: UrlOption = None,
    folder: FolderOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Show audit records, oldest first."""
    wanted = _query(agent=agent, run=run, kind=kind, tool=tool, since=since, until=until)
    if after is not None:
        from serve.representations import PLACE_PATTERN

        if not re.match(PLACE_PATTERN, after):
            raise typer.BadParameter(f"{after!r} is not the end of a list", param_hint="--after")
    with ledger_source(url, folder) as source:
        page = source.page(wanted, after, limit)
    if as_json:
        print_json(page)
        return
    rows = [
        (
            when(each["at"]),
            each["agent"],
            each["run_id"],
            each["kind"],
            line(each),
            f"{each['writer']} {each['position']}",
        )
        for each in page["records"]
    ]
    table(("AT", "AGENT", "RUN", "KIND", "WHAT", "CHAIN"), rows, empty="the ledger has no such records")
    if page["next_after"] is not None:
        console().print(f"there may be more: add --after {shlex.quote(page['next_after'])}", soft_wrap=True)


def heads(*, url: UrlOption = None, folder: FolderOption = HERE) -> None:
    """Print the heads of the hash chains, a line of JSON for each, to keep where nobody can change them together with the ledger."""
    with ledger_source(url, folder) as source:
        for head in source.heads():
            typer.echo(orjson.dumps(head).decode())


def verify(
    *,
    since: Annotated[
        Path | None,
        typer.Option(
            "--since",
            help="A file with the output of an earlier `ledger heads`: the chains must still have these.",
            dir_okay=False,
        ),
    ] = None,
    tenant: Annotated[
        str | None,
        typer.Option("--tenant", help="Of this tenant, a deleted one too; for operators.", show_default="one's own"),
    ] = None,
    url: UrlOption = None,
    folder: FolderOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Verify the hash chains, record by record; exit with 1 if a record was changed, removed, inserted or moved.

    It also exits with 1 if the store has lost the triggers that refuse such changes.

    The chains are also compared with the heads that the runtime saved beside its store.
    """
    noted = () if since is None else _noted(since)
    with ledger_source(url, folder) as source:
        verification = source.verify(noted, tenant)
    if as_json:
        print_json(verification)
    else:
        _print(verification)
    raise typer.Exit(0 if verification["holds"] and not verification["missing_guards"] else 1)


def export(
    *,
    form: Annotated[LedgerFormat, typer.Option("--format", help="How records are written.")] = LedgerFormat.JSONL,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file.", dir_okay=False, show_default="stdout")
    ] = None,
    agent: AgentOption = None,
    run: RunOption = None,
    kind: KindOption = None,
    tool: ToolOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    url: UrlOption = None,
    folder: FolderOption = HERE,
) -> None:
    """Write all records that match, oldest first, to a file or to stdout. The file is complete or not written at all."""
    wanted = _query(agent=agent, run=run, kind=kind, tool=tool, since=since, until=until)
    check(form)
    stdout = typer.get_binary_stream("stdout")
    if output is None and form is LedgerFormat.PARQUET and stdout.isatty():
        raise typer.BadParameter("Parquet is not for a terminal: name a file", param_hint="--output")
    with ledger_source(url, folder) as source:
        found = pages(source, wanted, _EXPORT_PAGE)
        if output is None:
            write(found, form, stdout)
            stdout.flush()
            return
        if not output.absolute().parent.is_dir():
            raise typer.BadParameter(f"there is no folder {output.absolute().parent}", param_hint="--output")
        with whole_file(output) as file:
            count = write(found, form, file)
    console().print(f"{output}: {counted(count, 'record')}", soft_wrap=True)


def _query(
    *, agent: str | None, run: str | None, kind: str | None, tool: str | None, since: str | None, until: str | None
) -> LedgerSelection:
    known: dict[str, wire.LedgerKind] = {each: each for each in get_args(wire.LedgerKind)}
    if kind is not None and kind not in known:
        raise typer.BadParameter(f"{kind!r} is none of {', '.join(known)}", param_hint="--kind")
    wanted = None if kind is None else known[kind]
    return LedgerSelection(agent, run, wanted, tool, moment_of(since, "--since"), moment_of(until, "--until"))


def _noted(path: Path) -> list[wire.LedgerHead]:
    """Return the last head of each chain in the file."""
    from owlclaw_ray.ledger.chain_heads import read_heads, written

    try:
        noted = read_heads(path)
    except OSError as error:
        raise typer.BadParameter(f"{path}: {error.strerror}", param_hint="--since") from None
    if noted.problems or not noted.heads:
        said = noted.problems[0] if noted.problems else f"{path} has no heads"
        raise typer.BadParameter(f"{said}; `owlclaw ledger heads` prints them", param_hint="--since")
    last = {(head.tenant, head.writer): head for head in sorted(noted.heads, key=lambda each: each.position)}
    return [orjson.loads(line) for line in written(last.values()).splitlines()]


def _print(verification: wire.LedgerVerification) -> None:
    chains, breaks = verification["chains"], verification["breaks"]
    records = sum(each["records"] for each in chains)
    broken = {each["writer"] for each in breaks}
    for chain in chains:
        state, count = "broken" if chain["writer"] in broken else "holds", counted(chain["records"], "record")
        console().print(f"{chain['writer']}: {count}, {state}, ends in {chain['hash']}", soft_wrap=True)
    for problem in verification["noted"]["problems"]:
        complain(problem)
    if missing := verification["missing_guards"]:
        complain(
            f"the store has lost triggers that keep the ledger append-only ({', '.join(missing)}): they were dropped or changed. "
            "Restart the runtime, which restores them: owlclaw down, owlclaw up"
        )
    if not breaks:
        compared = counted(verification["noted"]["heads"], "noted head")
        said = (
            f"the ledger holds: {counted(len(chains), 'chain')}, {counted(records, 'record')}, compared with {compared}"
        )
        console().print(said, soft_wrap=True)
        return
    rows = [(each["writer"], str(each["position"]), each["kind"], each["problem"]) for each in breaks]
    table(("CHAIN", "SEQ", "DONE", "WHAT"), rows, empty="")
    complain(f"the ledger was tampered with: {counted(len(breaks), 'break')}")
