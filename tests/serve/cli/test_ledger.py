from __future__ import annotations

import asyncio
import io
import json
import sqlite3
import sys
from datetime import timedelta
from pathlib import Path

import msgspec
import orjson
import pytest
from pyarrow import parquet

from owlclaw_ray.domain.ledger import BreakKind, ChainBreak, LedgerKind, LedgerRecord, NotedHead
from owlclaw_ray.ids import DEFAULT_TENANT
from owlclaw_ray.ledger.chain_heads import ChainHeadFile, ChainHeadFolder
from owlclaw_ray.store.commands import AppendLedger
from owlclaw_ray.store.queries import LedgerChains
from owlclaw_ray.store.sql.factory import open_existing, open_store
from serve.cli import ledger_files, ledger_lines
from serve.cli.ledger_files import LedgerFormat, whole_file, write
from serve.representations import exact_moment
from tests.contracts.store_ledger_contract import NOW
from tests.serve.cli.conftest import Run
from tests.serve.double import MemoryRuntime

DATA = {
    LedgerKind.TRIGGER: {"what": "merged", "trigger_id": "run_9"},
    LedgerKind.RUN: {
        "status": "failed",
        "turns": 2,
        "tool_calls": 1,
        "duration_ms": 7,
        "error": {"type": "x", "message": "猫"},
    },
    LedgerKind.MODEL_CALL: {
        "model": "m",
        "usage": {"prompt_tokens": 900, "completion_tokens": 60, "cached_tokens": 0, "cost": 0.0021},
        "duration_ms": 5,
    },
    LedgerKind.TOOL_CALL: {"tool": "shop.reorder", "arguments": '{"n":1}', "content": {"order": 1}, "duration_ms": 3},
    LedgerKind.APPROVAL: {
        "what": "decided",
        "approval_id": "apr_1",
        "call_id": "c1",
        "tool": "shop.pay",
        "status": "denied",
        "decision": "deny",
        "reason": "too much",
        "by": "张三",
    },
    LedgerKind.MEMORY: {"what": "edit", "by": "张三", "memory_ids": ["mem_1"], "content": "茶", "error": "locked"},
    LedgerKind.DECISION: {"decision_type": "no_action", "reasoning": "负载低"},
    LedgerKind.VISIBILITY: {
        "visible": 3,
        "tools": "hash",
        "hidden": [{"tools": ["shop.reorder"], "by": "hours", "reason": "closed"}],
        "skills": [{"skills": ["restock"], "by": "risk", "reason": "its risk is high"}],
    },
    LedgerKind.WARNING: {"unknown": "form"},
}
SAID = [
    "merged trigger_id=run_9",
    "failed · 2 turns · 1 tool call · 7 ms · x: 猫",
    "m · 960 tokens · $0.0021 · 5 ms",
    'shop.reorder {"n":1} → {"order":1} · 3 ms',
    "shop.pay denied by 张三 (too much) · apr_1",
    "edit by 张三 mem_1: 茶 · not done: locked",
    "no_action: 负载低",
    "3 tools visible · hidden: shop.reorder (closed); skills restock (its risk is high)",
    '{"unknown":"form"}',
]


def record(number, kind=LedgerKind.DECISION):
    at = NOW + timedelta(seconds=number)
    return LedgerRecord(f"rec_{number}", DEFAULT_TENANT, "assistant", f"run_{number % 2}", kind, at, DATA[kind])


def fill(folder: Path, records):
    async def write_all():
        store = await open_store(f"sqlite:///{folder}/.owlclaw/owlclaw.db", writer="keeper@猫 1")
        await store.apply([AppendLedger(tuple(records))])
        await store.close()

    asyncio.run(write_all())


@pytest.fixture
def filled(cli: Run, tmp_path: Path) -> Run:
    """Runs a command line in a folder whose store has a record of each kind, and where no server runs."""
    fill(tmp_path, [record(number, kind) for number, kind in enumerate(DATA)])
    return cli


def test_a_call_whose_price_is_not_known_is_not_said_to_cost_nothing(cli: Run, tmp_path: Path):
    call = DATA[LedgerKind.MODEL_CALL]
    unpriced = {**call, "usage": {**call["usage"], "cost": 0.0}}
    fill(tmp_path, [msgspec.structs.replace(record(1, LedgerKind.MODEL_CALL), data=unpriced)])

    output = cli("ledger", "query").output

    assert "m · 960 tokens · 5 ms" in output
    assert "$" not in output


def damage(folder: Path, *statements: str) -> None:
    connection = sqlite3.connect(folder / ".owlclaw" / "owlclaw.db")
    triggers = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    dropped = [f"DROP TRIGGER {name}" for name, _ in triggers]
    for statement in (*dropped, *statements, *(sql for _, sql in triggers)):
        connection.execute(statement)
    connection.commit()
    connection.close()


def ids(result):
    assert result.exit_code == 0
    return [each["record_id"] for each in json.loads(result.output)["records"]]


def test_the_ledger_is_read_from_the_server_that_runs(owlclaw: Run):
    owlclaw("trigger", "assistant", "--wait")

    assert "no_action: 负载低" in owlclaw("ledger", "query", "--agent", "assistant").output
    assert ids(owlclaw("ledger", "query", "--json", "--kind", "decision", "--since", "1h")) == ["rec_1"]
    assert ids(owlclaw("ledger", "query", "--json", "--tool", "recall")) == []
    assert ids(owlclaw("ledger", "query", "--json", "--until", "2020-01-01")) == []


def test_without_a_server_the_ledger_is_read_from_the_store(filled: Run):
    lines = filled("ledger", "query").output.splitlines()

    assert lines[0].split() == ["AT", "AGENT", "RUN", "KIND", "WHAT", "CHAIN"]
    for line, kind, said in zip(lines[1:], DATA, SAID, strict=True):
        assert f" {kind.value} " in line
        assert said in line


def test_records_are_found_by_what_they_are(filled: Run):
    def found(*options: str) -> list[str]:
        return ids(filled("ledger", "query", "--json", *options))

    assert found("--run", "run_1") == ["rec_1", "rec_3", "rec_5", "rec_7"]
    assert found("--type", "tool_call") == found("--kind", "tool_call") == found("--tool", "shop.reorder") == ["rec_3"]
    assert found("--agent", "somebody") == []
    assert found("--since", "2026-11-21T08:30:02", "--until", "2026-11-21T16:30:04+08:00") == ["rec_2", "rec_3"]


def test_a_list_goes_on_where_it_ended(filled: Run):
    first = json.loads(filled("ledger", "query", "--json", "-n", "3").output)
    said = filled("ledger", "query", "-n", "3").output.splitlines()[-1]
    rest = filled("ledger", "query", "--json", "-n", "10", "--after", first["next_after"])

    assert said == f"there may be more: add --after '{first['next_after']}'"
    assert ids(rest) == ["rec_3", "rec_4", "rec_5", "rec_6", "rec_7", "rec_8"]
    assert json.loads(rest.output)["next_after"] is None


@pytest.mark.parametrize(
    ("option", "value"),
    [("--since", "yesterday"), ("--until", "999999999d"), ("--kind", "rumour"), ("--after", "there")],
)
def test_what_cannot_be_understood_is_wrong_usage(filled: Run, option: str, value: str):
    result = filled("ledger", "query", option, value)

    assert result.exit_code == 2
    assert option in result.output


def test_a_whole_ledger_is_said_to_hold(filled: Run, owlclaw: Run):
    result = owlclaw("ledger", "verify")

    assert result.exit_code == 0
    assert "the ledger holds: 1 chain, 0 records, compared with 0 noted heads" in result.output


def test_the_store_is_verified_when_no_server_runs(filled: Run):
    result = filled("ledger", "verify")

    assert result.exit_code == 0
    assert result.output.startswith("keeper@猫 1: 9 records, holds, ends in ")
    assert result.output.endswith("the ledger holds: 1 chain, 9 records, compared with 0 noted heads\n")
    assert "no heads are noted in " in result.output


def test_every_damage_is_named_by_chain_and_place(filled: Run, tmp_path: Path):
    damage(tmp_path, "UPDATE ledger SET data = '{}' WHERE position = 2", "DELETE FROM ledger WHERE position > 5")

    result = filled("ledger", "verify")
    told = json.loads(filled("ledger", "verify", "--json").output)

    assert result.exit_code == 1
    assert "keeper@猫 1: 9 records, broken, ends in " in result.output
    assert "the ledger was tampered with: 2 breaks" in result.output
    assert [
        line.rstrip().split(maxsplit=4)[2:] for line in result.output.splitlines() if "1  " in line and "rec" in line
    ] == [
        ["2", "changed", "record rec_1 was changed"],
        ["6", "removed", "records 6 to 9 are missing"],
    ]
    assert told["breaks"][0] == {
        "writer": "keeper@猫 1",
        "position": 2,
        "kind": "changed",
        "record_id": "rec_1",
        "problem": "record rec_1 was changed",
    }


def test_a_store_whose_triggers_were_dropped_is_told_with_how_to_put_them_back(filled: Run, tmp_path: Path):
    with sqlite3.connect(tmp_path / ".owlclaw" / "owlclaw.db") as connection:
        connection.execute("DROP TRIGGER ledger_no_update")

    result = filled("ledger", "verify")

    assert result.exit_code == 1
    said = " ".join(result.output.split())
    assert "lost triggers that keep the ledger append-only (ledger_no_update)" in said
    assert "Restart the runtime, which restores them" in said
    assert "the ledger holds: 1 chain" in said
    told = json.loads(filled("ledger", "verify", "--json").output)
    assert (told["holds"], told["missing_guards"]) == (True, ["ledger_no_update"])


def test_what_the_server_finds_is_told(owlclaw: Run, runtime: MemoryRuntime):
    runtime.breaks = (ChainBreak(DEFAULT_TENANT, "test", 3, "record 3 is missing", BreakKind.REMOVED),)

    result = owlclaw("ledger", "verify")

    assert result.exit_code == 1
    assert "record 3 is missing" in result.output


CUT = (
    "DELETE FROM ledger WHERE position > 7",
    "UPDATE ledger_heads SET position = 7, hash = (SELECT hash FROM ledger WHERE position = 7)",
)
"""What cuts off the end of the only chain together with its recorded end."""


def heads_beside(folder: Path) -> ChainHeadFile:
    return ChainHeadFolder(folder / ".owlclaw").writer("keeper@猫 1")


def note(folder: Path) -> None:
    async def head():
        store = await open_existing(f"sqlite:///{folder}/.owlclaw/owlclaw.db")
        [chain] = await store.read(LedgerChains(DEFAULT_TENANT))
        await store.close()
        return NotedHead(NOW, DEFAULT_TENANT, chain.writer, chain.position, chain.hash)

    heads_beside(folder).note([asyncio.run(head())])


def test_an_end_cut_off_with_the_recorded_end_is_found_by_earlier_heads(filled: Run, tmp_path: Path):
    earlier = tmp_path / "heads.jsonl"
    earlier.write_text(filled("ledger", "heads").output)
    assert filled("ledger", "verify", "--since", str(earlier)).exit_code == 0

    damage(tmp_path, *CUT)

    assert filled("ledger", "verify").exit_code == 0, "the store alone agrees with itself"
    result = filled("ledger", "verify", "--since", str(earlier))
    assert result.exit_code == 1
    assert "records 8 to 9 are missing: the chain ended in record 9 at " in " ".join(result.output.split())


def test_an_end_cut_off_with_the_recorded_end_is_found_by_what_was_noted_beside_the_store(filled: Run, tmp_path: Path):
    note(tmp_path)
    assert "compared with 1 noted head\n" in filled("ledger", "verify").output

    damage(tmp_path, *CUT)

    told = json.loads(filled("ledger", "verify", "--json").output)
    assert (told["holds"], told["noted"]) == (False, {"heads": 1, "problems": []})
    [only] = told["breaks"]
    assert (only["kind"], only["position"]) == ("removed", 8)


def test_a_chain_that_is_gone_with_its_recorded_end_is_found(filled: Run, tmp_path: Path):
    note(tmp_path)

    damage(tmp_path, "DELETE FROM ledger", "DELETE FROM ledger_heads")

    [only] = json.loads(filled("ledger", "verify", "--json").output)["breaks"]
    assert (only["writer"], only["kind"], only["position"]) == ("keeper@猫 1", "removed", 1)


def test_a_chain_that_was_computed_anew_is_found(filled: Run, tmp_path: Path):
    note(tmp_path)
    (tmp_path / ".owlclaw" / "owlclaw.db").unlink()
    fill(tmp_path, [record(number, LedgerKind.DECISION) for number in range(12)])

    [only] = json.loads(filled("ledger", "verify", "--json").output)["breaks"]

    assert (only["kind"], only["position"]) == ("changed", 9)
    assert "had another hash" in only["problem"]


@pytest.mark.parametrize(
    ("written", "said"),
    [(b"\xff\x00 no json\n", "is damaged: no head can be read in line 1"), (b"[]\n" * 9, "in line 1, 2, 3, 4, 5, …")],
)
def test_a_damaged_file_of_heads_is_said(filled: Run, tmp_path: Path, written: bytes, said: str):
    note(tmp_path)
    [file] = (tmp_path / ".owlclaw" / "ledger-heads").iterdir()
    file.write_bytes(written + file.read_bytes())

    result = filled("ledger", "verify")

    assert result.exit_code == 0
    assert said in " ".join(result.output.split())
    assert "compared with 1 noted head\n" in result.output


@pytest.mark.parametrize(("text", "said"), [("", "has no heads"), ("{}\n", "is damaged"), (None, "does not exist")])
def test_heads_that_cannot_be_read_are_wrong_usage(filled: Run, tmp_path: Path, text: str | None, said: str):
    given = tmp_path / "heads.jsonl"
    if text is not None:
        given.write_text(text)

    result = filled("ledger", "verify", "--since", str(given))

    assert result.exit_code == 2
    assert "--since" in result.output
    assert said in " ".join(result.output.replace("│", " ").split()) or text is None


def test_earlier_heads_are_given_to_the_server_that_runs(owlclaw: Run, runtime: MemoryRuntime, tmp_path: Path):
    owlclaw("trigger", "assistant", "--wait")
    earlier = tmp_path / "heads.jsonl"
    earlier.write_text(owlclaw("ledger", "heads").output)

    result = owlclaw("ledger", "verify", "--since", str(earlier))

    assert result.exit_code == 0
    [head] = runtime.since
    assert (head.tenant, head.writer, head.position, head.hash) == (DEFAULT_TENANT, "test", 1, "1" * 64)
    assert orjson.loads(earlier.read_text())["at"] == exact_moment(head.at)


@pytest.mark.parametrize("command", ["query", "heads", "verify", "export"])
def test_where_no_store_is_none_is_made(cli: Run, tmp_path: Path, command: str):
    result = cli("ledger", command)

    assert result.exit_code == 1
    assert "there is no store yet" in result.output
    assert not list(tmp_path.iterdir())


def test_a_store_of_another_schema_is_left_as_it_is(filled: Run, tmp_path: Path):
    damage(tmp_path, "UPDATE alembic_version SET version_num = '0001'")

    result = filled("ledger", "verify")

    assert result.exit_code == 1
    assert "schema 0001" in " ".join(result.output.split())


def test_a_record_of_access_says_what_was_done_by_whom():
    data = {"what": "key_created", "by": "system:local", "key_id": "4fT0aQ1z", "scopes": ["runs:read"]}

    assert (
        ledger_lines.line({"kind": "access", "data": data})
        == "key_created by system:local key_id=4fT0aQ1z scopes=['runs:read']"
    )


def test_lines_are_exported_in_order(filled: Run, tmp_path: Path):
    to_stdout = filled("ledger", "export").output
    result = filled("ledger", "export", "--output", "ledger.jsonl")

    lines = (tmp_path / "ledger.jsonl").read_text(encoding="utf-8")
    assert lines == to_stdout
    records = [json.loads(line) for line in lines.splitlines()]
    assert [each["record_id"] for each in records] == [f"rec_{number}" for number in range(len(DATA))]
    assert [each["data"] for each in records] == list(DATA.values())
    assert records[1]["at"] == "2026-11-21T08:30:01.000000Z"
    assert result.output == "ledger.jsonl: 9 records\n"


def test_parquet_says_what_the_lines_say(filled: Run, tmp_path: Path):
    assert filled("ledger", "export", "--format", "parquet", "-o", "ledger.parquet").exit_code == 0

    rows = parquet.read_table(tmp_path / "ledger.parquet").to_pylist()
    lines = [json.loads(line) for line in filled("ledger", "export").output.splitlines()]
    assert [{**row, "data": json.loads(row["data"]), "at": None} for row in rows] == [
        {**line, "at": None} for line in lines
    ]
    assert [row["at"] for row in rows] == [record(number).at for number in range(len(DATA))]


def test_an_export_takes_page_after_page(filled: Run, tmp_path: Path, owlclaw: Run):
    fill(tmp_path, [record(number) for number in range(len(DATA), 4_300)])
    sizes = []

    def counted(pages):
        for page in pages:
            sizes.append(len(page))
            yield page

    from serve.cli.ledger_source import LedgerSelection, ledger_source, pages

    with ledger_source(None, tmp_path) as source:
        count = write(counted(pages(source, LedgerSelection(), 2_000)), LedgerFormat.JSONL, io.BytesIO())

    assert (count, sizes) == (4_300, [2_000, 2_000, 300])


def test_an_export_from_a_server_follows_its_pages(owlclaw: Run):
    for _ in range(3):
        owlclaw("trigger", "assistant", "--wait")

    records = [json.loads(line) for line in owlclaw("ledger", "export", "--agent", "assistant").output.splitlines()]

    assert [each["record_id"] for each in records] == ["rec_1", "rec_2", "rec_3"]


def test_an_export_that_breaks_off_leaves_the_file_before_it(tmp_path: Path):
    target = tmp_path / "ledger.jsonl"
    target.write_text("before")

    def broken():
        yield [{"record_id": "rec_1"}]
        raise RuntimeError

    with pytest.raises(RuntimeError), whole_file(target) as file:
        write(broken(), LedgerFormat.JSONL, file)

    assert [path.name for path in tmp_path.iterdir()] == ["ledger.jsonl"]
    assert target.read_text() == "before"


def test_without_pyarrow_the_way_to_get_it_is_said(filled: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    result = filled("ledger", "export", "--format", "parquet", "--output", "ledger.parquet")

    assert result.exit_code == 1
    assert result.output == "Parquet needs pyarrow; install it with: pip install pyarrow\n"
    assert not (tmp_path / "ledger.parquet").exists()


def test_a_file_in_no_folder_is_wrong_usage(filled: Run):
    result = filled("ledger", "export", "--output", "nowhere/ledger.jsonl")

    assert result.exit_code == 2
    assert "there is no folder" in result.output


def test_the_format_is_checked_before_anything_is_read():
    ledger_files.check(LedgerFormat.JSONL)
    ledger_files.check(LedgerFormat.PARQUET)


@pytest.mark.parametrize("data", [[], "text", None, {}])
def test_data_of_another_shape_is_shown_as_it_is(data: object):
    for kind in ("trigger", "run", "tool_call", "approval", "decision"):
        assert ledger_lines.line({"kind": kind, "data": data}) == json.dumps(data)  # type: ignore[typeddict-item]
