"""Load for a running server, as its users make it: triggers, waiting for outcomes, reading runs, following their events.

    locust -f benchmarks/locustfile.py --headless -u 50 -r 10 -t 30s --host http://127.0.0.1:8700

Without `--headless` it opens locust's page at http://127.0.0.1:8089. It triggers one definition, under `--keys` keys: the one that
`--agent` names, else the first that a script answers, so that no real model is asked by accident. It ends with code 1 if more than
one request in a thousand fails.
"""

from __future__ import annotations

import json
import logging
import random
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from locust import FastHttpUser, between, events, task
from locust.argument_parser import LocustArgumentParser
from locust.env import Environment
from locust.exception import RescheduleTask

MOST_FAILING = 0.001
_CANNOT_BEGIN = 2
_TRIGGER = {"payload": {"price": 7}, "focus": "prices"}
_REMEMBERED = 20

logger = logging.getLogger(__name__)


class NoAgentError(Exception):
    """The server has no agent that this load may trigger."""


@events.init_command_line_parser.add_listener  # type: ignore[untyped-decorator]
def add_options(parser: LocustArgumentParser) -> None:
    """Add what only this load can be told."""
    parser.add_argument("--agent", default="", help="definition to trigger; default: the first that a script answers")
    parser.add_argument("--keys", type=int, default=200, help="agents of that definition, one a key")


@events.test_start.add_listener  # type: ignore[untyped-decorator]
def choose_definition(environment: Environment, **_: object) -> None:
    """Ask the server for its agents and choose one; without one, say why and end with code 2 (with locust's page open: stop)."""
    try:
        with urlopen(f"{environment.host}/v1/agents", timeout=10) as response:  # noqa: S310 - the host that the user named
            User.definition = definition_of(
                json.load(response)["agents"], getattr(environment.parsed_options, "agent", "")
            )
    except (NoAgentError, URLError) as error:
        reason = f"no server at {environment.host}: {error.reason}" if isinstance(error, URLError) else str(error)
        logger.error("%s", reason)  # noqa: TRY400 - it says all that there is to know
        environment.process_exit_code = _CANNOT_BEGIN
        if environment.web_ui is None:
            raise SystemExit(_CANNOT_BEGIN) from None
        if environment.runner is not None:
            environment.runner.quit()


@events.quitting.add_listener  # type: ignore[untyped-decorator]
def judge(environment: Environment, **_: object) -> None:
    """Set the exit code."""
    if environment.stats.total.fail_ratio > MOST_FAILING:
        environment.process_exit_code = 1


def definition_of(agents: list[dict[str, Any]], wanted: str) -> str:
    """Return the definition to trigger, of those that GET /v1/agents lists. Raises NoAgentError."""
    definitions = {str(each["agent"]).partition(":")[0]: each for each in agents if not each["problem"]}
    if wanted:
        if wanted in definitions:
            return wanted
        raise NoAgentError(f"there is no usable agent {wanted!r}; there are {', '.join(sorted(definitions))}")
    scripted = sorted(name for name, each in definitions.items() if each["scripted"])
    if not scripted:
        raise NoAgentError("a script answers none of the agents; name one with --agent to have its model asked")
    return scripted[0]


class User(FastHttpUser):
    """Triggers agents and looks at what becomes of it, a few times a second."""

    wait_time = between(0.1, 0.5)
    definition = ""

    def on_start(self) -> None:
        """Trigger a run first, for there is something to look at then."""
        self._keys: int = self.environment.parsed_options.keys
        self._runs: list[str] = []
        self.trigger()

    @task(6)
    def trigger(self) -> None:
        """Submit, and go on."""
        with self._submit("POST …/triggers", "") as response:
            if response.status_code == 202:
                self._remember(response.json()["run_id"])
            else:
                response.failure(f"{response.status_code}: {response.text}")

    @task(2)
    def trigger_and_wait(self) -> None:
        """Submit, and wait for the outcome."""
        with self._submit("POST …/triggers?wait", "?wait=60") as response:
            if response.status_code != 200:
                response.failure(f"{response.status_code}: {response.text}")
            elif response.json()["status"] != "completed":
                response.failure(f"the run ended {response.json()['status']}: {response.json()['result']['error']}")
            else:
                self._remember(response.json()["run_id"])

    @task(2)
    def read(self) -> None:
        """Read a run."""
        self.client.get(f"/v1/runs/{self._one()}", name="GET /v1/runs/…")

    @task(1)
    def follow(self) -> None:
        """Read all events of a run, to its end."""
        with self.client.get(
            f"/v1/runs/{self._one()}/events", name="GET /v1/runs/…/events", catch_response=True
        ) as response:
            if not (response.text or "").rstrip().rpartition("\n\n")[2].startswith("event: end"):
                response.failure("the events did not end")

    @task(1)
    def listing(self) -> None:
        """List the newest runs."""
        self.client.get("/v1/runs?limit=20", name="GET /v1/runs")

    def _submit(self, name: str, query: str) -> Any:
        key = random.randrange(self._keys)  # noqa: S311 - which agent is no secret
        path = f"/v1/agents/{self.definition}:{key}/triggers{query}"
        return self.client.post(path, name=name, json=_TRIGGER, catch_response=True)

    def _remember(self, run_id: str) -> None:
        self._runs = [*self._runs[-_REMEMBERED + 1 :], run_id]

    def _one(self) -> str:
        if not self._runs:
            raise RescheduleTask
        return random.choice(self._runs)  # noqa: S311 - as above
