"""`owlclaw schedules list | show | create | pause | resume | cancel | backfill | ticks`: when agents run by themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated, get_args

import typer

from owlclaw_ray import wire
from owlclaw_ray.counting import counted
from owlclaw_ray.errors import ScheduleError
from serve.cli.connection import HERE, FolderOption, JsonOption, UrlOption, connect
from serve.cli.listings import ALL, LimitOption, StatusOption, status_of
from serve.cli.output import console, plain, print_json, table, when
from serve.cli.trigger import TaskTypeOption

AgentArgument = Annotated[str, typer.Argument(help="definition or definition:key", metavar="AGENT")]
ScheduleArgument = Annotated[str, typer.Argument(help="The schedule.", metavar="SCHEDULE_ID")]


_OPTIONS = {
    "at": "--at",
    "delay_seconds": "--in",
    "interval_seconds": "--every",
    "cron_expression": "--cron",
    "timezone": "--zone",
    "jitter_seconds": "--jitter",
    "catch_up_seconds": "--catch-up",
    "task_type": "--task-type",
}
"""The options of `create`, by the fields of the API that they are."""
_FIELD = re.compile(rf"(?<![\w'-])({'|'.join(_OPTIONS)})(?![\w'])")


def register(cli: typer.Typer) -> None:
    """Add the commands."""
    schedules = typer.Typer(
        name="schedules", help="See and change when agents run by themselves.", no_args_is_help=True
    )
    schedules.command("list")(list_schedules)
    for command in (show, create, pause, resume, cancel, backfill, ticks):
        schedules.command()(command)
    cli.add_typer(schedules)


def list_schedules(
    agent: Annotated[str | None, typer.Argument(help="Only this agent's.", metavar="AGENT")] = None,
    status: StatusOption = ALL,
    limit: LimitOption = 100,
    *,
    url: UrlOption = None,
    folder: FolderOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """List schedules, by agent, oldest first."""
    with connect(url, folder) as client:
        found = client.schedules(agent, status_of(status, wire.ScheduleStatus), limit)
    if as_json:
        print_json(found)
        return
    rows = [
        (
            each["schedule_id"],
            each["agent"],
            each["status"],
            _rule(each),
            when(each["next_fire_at"]),
            each["focus"],
        )
        for each in found
    ]
    stand = "" if status == ALL else f" that are {status}"
    empty = f"{agent} has no schedules{stand}" if agent else f"there are no schedules{stand}"
    table(("SCHEDULE", "AGENT", "STATUS", "RULE", "NEXT", "FOCUS"), rows, empty=empty)


def show(
    schedule_id: ScheduleArgument, *, url: UrlOption = None, folder: FolderOption = HERE, as_json: JsonOption = False
) -> None:
    """Show a schedule."""
    with connect(url, folder) as client:
        _print(client.schedule(schedule_id), as_json=as_json)


def create(
    agent: AgentArgument,
    focus: Annotated[str, typer.Argument(help="What the runs should attend to.", metavar="FOCUS")],
    *,
    at: Annotated[str | None, typer.Option("--at", help="Once, at this time: 2026-11-03T09:30:00+08:00.")] = None,
    delay: Annotated[float | None, typer.Option("--in", help="Once, after so many seconds.")] = None,
    every: Annotated[int | None, typer.Option("--every", help="Every so many seconds, at least 60.")] = None,
    cron: Annotated[str | None, typer.Option("--cron", help="By five fields or a name: '0 9 * * MON-FRI', @daily.")] = (
        None
    ),
    zone: Annotated[str, typer.Option("--zone", help="The time zone of --cron, as IANA names it.")] = "UTC",
    jitter: Annotated[int, typer.Option("--jitter", help="Later than its times, by up to so many seconds.")] = 0,
    overlap: Annotated[
        str,
        typer.Option("--overlap", help="When earlier runs are not over: buffer_one, skip, enqueue, cancel_previous."),
    ] = "buffer_one",
    catch_up: Annotated[
        float | None, typer.Option("--catch-up", help="How many seconds late a missed time may still fire.")
    ] = None,
    task_type: TaskTypeOption = "",
    url: UrlOption = None,
    folder: FolderOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Have an agent run in future; give one of --at, --in, --every and --cron."""
    with connect(url, folder) as client, _options_named():
        made = client.create_schedule(
            agent,
            focus,
            at=None if at is None else _time(at, "--at"),
            delay=delay,
            interval=every,
            cron=cron,
            timezone=zone,
            jitter=jitter,
            overlap=_overlap(overlap),
            catch_up=catch_up,
            task_type=task_type,
        )
    _print(made, as_json=as_json)


@contextmanager
def _options_named() -> Iterator[None]:
    """Have an error about a field of the API name the option that was typed."""
    try:
        yield
    except ScheduleError as error:
        problem = _FIELD.sub(lambda field: _OPTIONS[field[0]], error.problem)
        raise ScheduleError(_OPTIONS.get(error.field, error.field), problem) from error


def pause(
    schedule_id: ScheduleArgument, *, url: UrlOption = None, folder: FolderOption = HERE, as_json: JsonOption = False
) -> None:
    """Let a schedule's times pass without runs."""
    with connect(url, folder) as client:
        _print(client.pause_schedule(schedule_id), as_json=as_json)


def resume(
    schedule_id: ScheduleArgument, *, url: UrlOption = None, folder: FolderOption = HERE, as_json: JsonOption = False
) -> None:
    """Have a paused schedule go on with the next time that comes."""
    with connect(url, folder) as client:
        _print(client.resume_schedule(schedule_id), as_json=as_json)


def cancel(
    schedule_id: ScheduleArgument, *, url: UrlOption = None, folder: FolderOption = HERE, as_json: JsonOption = False
) -> None:
    """End a schedule, and the runs of its firings that are not over."""
    with connect(url, folder) as client:
        _print(client.cancel_schedule(schedule_id), as_json=as_json)


def backfill(
    schedule_id: ScheduleArgument,
    since: Annotated[str, typer.Option("--from", help="The first time: 2026-11-03T00:00:00+08:00.")],
    until: Annotated[str, typer.Option("--to", help="The last time, included; not after now.")],
    *,
    url: UrlOption = None,
    folder: FolderOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Queue runs for past times that have none."""
    with connect(url, folder) as client:
        done = client.backfill_schedule(schedule_id, _time(since, "--from"), _time(until, "--to"))
    if as_json:
        print_json(done)
        return
    console().print(
        f"{counted(len(done['queued']), 'run')} queued, {counted(done['known'], 'time')} had one already, "
        f"{done['refused']} refused by a full queue"
    )


def ticks(
    schedule_id: ScheduleArgument,
    limit: LimitOption = 20,
    *,
    url: UrlOption = None,
    folder: FolderOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Show what became of a schedule's times, newest first."""
    with connect(url, folder) as client:
        found = client.ticks(schedule_id, limit=limit)["ticks"]
    if as_json:
        print_json(found)
        return
    rows = [
        (when(each["due_at"]), str(each["count"]), each["outcome"], each["run_id"] or "", each["reason"])
        for each in found
    ]
    table(("DUE", "TIMES", "OUTCOME", "RUN", "REASON"), rows, empty=f"no time of {schedule_id} has come yet")


def _print(schedule: wire.Schedule, *, as_json: bool) -> None:
    if as_json:
        print_json(schedule)
        return
    target = console()
    target.print(f"{schedule['schedule_id']} · {schedule['status']} · {plain(_rule(schedule))}", style="bold")
    catch_up = schedule["catch_up_seconds"]
    lines = [
        ("agent", schedule["agent"]),
        ("focus", schedule["focus"]),
        ("next", when(schedule["next_fire_at"])),
        ("jitter", f"up to {schedule['jitter_seconds']} s" if schedule["jitter_seconds"] else ""),
        ("overlap", "" if schedule["kind"] == "once" else schedule["overlap"]),
        ("catch up", "" if catch_up is None else f"up to {catch_up:g} s late"),
        ("task type", schedule["task_type"]),
        ("made by", schedule["created_by_run"] or ""),
    ]
    for name, value in lines:
        if value:
            target.print(f"  {name:<11}{plain(value)}", soft_wrap=True)


def _rule(schedule: wire.Schedule) -> str:
    match schedule["kind"]:
        case "once":
            return "once"
        case "interval" | "heartbeat":
            look = ", if something is pending" if schedule["kind"] == "heartbeat" else ""
            return f"every {schedule['interval_seconds']} s{look}"
        case "cron":
            return f"{schedule['cron_expression']} {schedule['timezone']}"


def _time(text: str, option: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.utcoffset() is None:
        raise typer.BadParameter(
            f"{text!r} is no time with a zone, such as 2026-11-03T09:30:00+08:00", param_hint=option
        )
    return at


def _overlap(text: str) -> wire.OverlapPolicy:
    known: dict[str, wire.OverlapPolicy] = {each: each for each in get_args(wire.OverlapPolicy)}
    if text not in known:
        raise typer.BadParameter(f"{text!r} is none of {', '.join(known)}", param_hint="--overlap")
    return known[text]
