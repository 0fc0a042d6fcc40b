from __future__ import annotations

import httpx
import pytest
from fastapi import FastAPI

from owlclaw_ray.errors import (
    BudgetExhaustedError,
    ConfigurationError,
    ModelUnavailableError,
    OwlClawError,
    Problem,
    RuntimeUnavailableError,
    StoreUnavailableError,
    TerminalError,
    UserError,
)
from owlclaw_ray.runtime.api import Runtime
from serve.problems import problem_of
from tests.serve.conftest import posted


async def test_an_unknown_path_is_a_problem_that_points_to_the_documentation(http: httpx.AsyncClient):
    response = await http.get("/v2/whatever")

    assert response.status_code == 404
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json() == {
        "type": "urn:owlclaw:problem:unknown-path",
        "title": "Not found",
        "status": 404,
        "detail": "there is nothing at /v2/whatever; /docs lists what there is",
        "instance": "/v2/whatever",
    }


async def test_a_wrong_method_is_a_problem_that_names_the_right_one(http: httpx.AsyncClient):
    response = await http.get("/v1/agents/assistant/triggers")

    assert (response.status_code, response.headers["allow"]) == (405, "POST")
    assert response.json()["detail"] == "/v1/agents/assistant/triggers does not take GET; it takes POST"


@pytest.mark.parametrize("error", [StoreUnavailableError("locked"), RuntimeUnavailableError("starting")])
async def test_what_may_work_later_says_when_to_come_back(
    http: httpx.AsyncClient, runtime: Runtime, monkeypatch: pytest.MonkeyPatch, error: Exception
):
    async def fails(*_args: object, **_kwargs: object) -> None:
        raise error

    monkeypatch.setattr(runtime, "submit", fails)
    response = await http.post("/v1/agents/assistant/triggers")

    assert (response.status_code, response.headers["retry-after"]) == (503, "1")
    assert response.json()["detail"] == str(error)


async def test_what_nobody_foresaw_is_logged_and_not_told(
    http: httpx.AsyncClient, runtime: Runtime, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    async def fails(*_args: object, **_kwargs: object) -> None:
        raise KeyError("secret")

    monkeypatch.setattr(runtime, "agents", fails)
    response = await http.get("/v1/agents")

    assert (response.status_code, response.json()["type"]) == (500, "urn:owlclaw:problem:unexpected")
    assert "secret" not in response.text
    (logged,) = [record for record in caplog.records if record.name.startswith("serve")]
    assert (logged.getMessage(), logged.levelname) == ("GET /v1/agents of 127.0.0.1 failed", "ERROR")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UserError("no"), 422),
        (ModelUnavailableError("busy"), 503),
        (TerminalError("never"), 500),
        (BudgetExhaustedError("the budget house is spent"), 409),
        (ConfigurationError([Problem("owlclaw.yaml: port", "is taken")]), 500),
    ],
)
def test_every_kind_of_error_has_a_status(error: OwlClawError, status: int):
    assert problem_of(error).status == status


async def test_a_client_that_leaves_while_sending_disturbs_nobody(api: FastAPI, caplog: pytest.LogCaptureFixture):
    sent: list[dict[str, object]] = []
    scope = posted("/v1/agents/assistant/triggers")

    async def receive() -> dict[str, object]:
        return {"type": "http.disconnect"}

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    await api(scope, receive, send)

    assert sent[0]["status"] == 499
    assert [record for record in caplog.records if record.name.startswith("serve")] == []
