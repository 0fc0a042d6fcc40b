"""What Serve's proxy answers while it has no route for the API, by the middleware that Ray puts into it."""

from __future__ import annotations

import httpx
import pytest
from ray._common.utils import import_attr
from ray.serve._private.http_util import convert_object_to_asgi_messages, validate_http_proxy_callback_return

from actors.environment import node_environment

NO_ROUTE = "Path '{path}' not found. Ping http://.../-/routes for available routes."


def proxy(answer, status):
    """Return a client of an application that answers so, within the middleware of a proxy."""

    async def app(scope, receive, send):
        for message in convert_object_to_asgi_messages(answer.format(path=scope["path"]), status_code=status):
            await send(message)

    variable = node_environment(2, json_logs=False)["RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"]
    for middleware in validate_http_proxy_callback_return(import_attr(variable)()):
        app = middleware.cls(app, *middleware.args, **middleware.kwargs)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://serve")


@pytest.mark.parametrize(
    "path", ["/v1/agents/ada/triggers", "/console/runs", "/readyz", "/healthz", "/metrics", "/docs"]
)
async def test_while_the_api_is_not_deployed_clients_are_told_to_try_again(path):
    async with proxy(NO_ROUTE, 404) as http:
        answer = await http.post(path, json={})

    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["type"].endswith("runtime-unavailable")
    assert "not deployed yet" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("path", "answer", "status"),
    [
        ("/v1/runs/run_1", "there is no run run_1", 404),
        ("/v1/runs", "[]", 200),
        ("/v1/runs", NO_ROUTE, 500),
        ("/other", NO_ROUTE, 404),
        ("/-/routes", NO_ROUTE, 404),
    ],
)
async def test_every_other_answer_stays_as_it_is(path, answer, status):
    async with proxy(answer, status) as http:
        found = await http.get(path)

    assert (found.status_code, found.text) == (status, answer.format(path=path))
