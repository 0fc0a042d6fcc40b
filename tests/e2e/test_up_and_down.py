from __future__ import annotations

import os
import subprocess
import sys
from stat import S_IMODE

import httpx
import pytest

from tests.serve.test_rights import rights

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]


def turn(*calls: tuple[str, dict[str, object]], **options: object) -> dict[str, object]:
    return {"tool_calls": [{"name": name, "arguments": arguments} for name, arguments in calls], **options}


LOOKS = {
    "when": {"trigger": "api"},
    "turns": [
        turn(("remember", {"content": "the disk fills on Fridays"})),
        turn(
            ("schedule_once", {"delay_seconds": 4, "focus": "look again"}), ("log_decision", {"reasoning": "because"})
        ),
        {"text": "done"},
    ],
}
FOLLOWS_UP = {"when": {"trigger": "schedule_once"}, "turns": [{"text": "looked again at {{ trigger.focus }}"}]}
SLOW = {
    "turns": [
        turn(("trial.act", {"what": "first"})),
        turn(("trial.act", {"what": "second"}), latency=20),
        {"text": "done"},
    ]
}
CAREFUL = {
    "turns": [turn(("trial.risk", {"what": "first"})), turn(("trial.act", {"what": "second"})), {"text": "done"}],
}


def outcome(client, run_id):
    for _ in client.events(run_id):
        pass
    return client.run(run_id, events=True)


def verified(said):
    """What `owlclaw ledger verify` said of the chains; heads are noted as time goes by, and once more at the stop."""
    return said.partition("ompared with ")[0]


def lines_about_requests(installation):
    """Return the lines of the logs of Serve's processes that tell of a request: a tenth of what a request costs would go there."""
    logs = [*installation.scratch().resolve().rglob("serve/*.log")]
    assert any("replica" in each.name for each in logs), logs
    return [line for each in logs for line in each.read_text().splitlines() if "/v1/" in line]


def test_after_ctrl_c_and_a_new_start_everything_is_there_and_what_fell_due_fires(installation):
    installation.define("watch", LOOKS, FOLLOWS_UP)
    installation.variables |= {"RAY_SERVE_REQUEST_PATH_LOG_BUFFER_SIZE": "1"}  # at once, not a thousand lines later
    installation.up()
    with installation.client() as client:
        first = client.submit("watch", {"x": 1}, wait=60)
        records = len(client.ledger(agent="watch"))
    assert lines_about_requests(installation) == []
    assert installation.interrupt() == 0

    installation.up()
    with installation.client() as client:
        followed_up = []
        while not followed_up:
            followed_up = [run for run in client.runs("watch")["runs"] if run["trigger"]["kind"] == "schedule_once"]
        run = outcome(client, followed_up[0]["run_id"])

        assert client.run(first["run_id"])["result"] == first["result"]
        assert [memory["content"] for memory in client.memories("watch")] == ["the disk fills on Fridays"]
        assert client.schedules("watch")[0]["status"] == "done"
        assert len(client.ledger(agent="watch")) > records
        assert run["result"]["final_text"] == "looked again at look again"
        told_by_the_server = installation.owlclaw("ledger", "verify")
        exported_by_the_server = installation.owlclaw("ledger", "export", "--run", first["run_id"])
    assert installation.interrupt() == 0
    assert verified(installation.owlclaw("ledger", "verify")) == verified(told_by_the_server)
    assert installation.owlclaw("ledger", "export", "--run", first["run_id"]) == exported_by_the_server != ""


def test_after_kill_minus_nine_of_everything_runs_go_on_without_repeating_a_call_and_approvals_wait(installation):
    installation.define("slow", SLOW)
    installation.define("careful", CAREFUL)
    installation.up()
    with installation.client() as client:
        run_id, waiting = client.submit("slow")["run_id"], client.submit("slow")["run_id"]
        asking, behind = client.submit("careful")["run_id"], client.submit("careful")["run_id"]
        for event in client.events(run_id):
            if event["kind"] == "tool_finished":
                break
        while not client.approvals():
            pass
        left = installation.scratch()
        installation.kill_everything()

    script = installation.folder / "agents" / "slow" / "script.yaml"
    script.write_text(script.read_text().replace("latency: 20", "latency: 0"))
    installation.up()
    assert not left.exists()
    with installation.client() as client:
        resumed, second = outcome(client, run_id), outcome(client, waiting)
        [approval] = client.approvals()
        assert client.run(asking)["status"] == "waiting"
        assert client.run(behind)["status"] == "queued"
        assert (approval["tool"], approval["arguments"]) == ("trial.risk", {"what": "FIRST"})
        client.decide(approval["approval_id"], "allow_once", by="ada")
        allowed = outcome(client, asking)
        while not (asked := client.approvals()):
            pass
        client.decide(asked[0]["approval_id"], "deny", reason="once is enough")
        denied = outcome(client, behind)
        ledger = [record["data"]["what"] for record in client.ledger(run=asking, kind="approval")]

    effects = [line.split() for line in (installation.folder / "effects").read_text().splitlines()]
    acted = {each: [word for run, word in effects if run == each] for each in (run_id, asking, behind)}
    kinds = [event["kind"] for event in allowed["events"]]
    assert {each["status"] for each in (resumed, second, allowed, denied)} == {"completed"}
    assert acted == {run_id: ["first", "second"], asking: ["FIRST", "second"], behind: ["second"]}
    assert "run_resumed" in [event["kind"] for event in resumed["events"]]
    assert (kinds.count("run_continued"), kinds.count("run_resumed")) == (1, 0)
    assert ledger == ["requested", "decided"]
    assert installation.interrupt() == 0


def test_a_second_runtime_for_the_same_data_is_refused_and_sigterm_ends_a_start(installation, tmp_path):
    installation.define("watch", {"turns": [{"text": "done"}]})
    installation.up()
    first = installation.process

    second = subprocess.run(
        [sys.executable, "-m", "serve.cli", "up"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert second.returncode == 1
    assert f"in use by process {first.pid}" in second.stderr
    with installation.client() as client:
        assert client.submit("watch", wait=60)["status"] == "completed"
    assert installation.interrupt() == 0

    starting = subprocess.Popen(
        [sys.executable, "-m", "serve.cli", "up"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    for line in starting.stdout:
        if "Ray is up" in line:
            break
    starting.terminate()
    _, said = starting.communicate(timeout=90)
    assert starting.returncode in {1, 130}
    assert "Traceback" not in said


def test_the_data_folder_is_closed_to_others_and_a_store_that_is_moved_away_accepts_nothing(installation):
    installation.define("watch", {"turns": [*LOOKS["turns"][:1], turn(("trial.act", {"what": "x"})), {"text": "done"}]})
    before = os.umask(0)
    try:
        installation.up()
    finally:
        os.umask(before)
    data_dir, url = installation.folder / ".owlclaw", f"http://127.0.0.1:{installation.port}"
    store, aside = data_dir / "owlclaw.db", data_dir / "aside.db"
    with installation.client() as client:
        assert client.submit("watch", wait=60)["status"] == "completed"
        while not list(data_dir.rglob("*.sums")):
            client.memories("watch")
        assert rights(data_dir) == {}
        assert S_IMODE((installation.folder / "effects").stat().st_mode) == 0o666, "handlers keep the umask"

        store.rename(aside)
        refused = httpx.post(f"{url}/v1/agents/watch/triggers")
        while (ready := httpx.get(f"{url}/readyz", timeout=30)).status_code == 200:
            pass
        aside.rename(store)
        while httpx.get(f"{url}/readyz", timeout=30).status_code != 200:
            pass
        assert client.submit("watch", wait=60)["status"] == "completed"

    assert refused.status_code == 503
    assert f"{store} was deleted or moved away" in refused.json()["detail"]
    assert f"{store} was deleted or moved away" in ready.json()["parts"]["keeper"]
    assert installation.interrupt() == 0
