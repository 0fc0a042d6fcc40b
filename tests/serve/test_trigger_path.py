"""What is a trigger is told before the router, and everything else is left to it."""

from __future__ import annotations

import pytest
from starlette.responses import PlainTextResponse

from serve.trigger_path import TriggerPath

PATH = "/v1/agents/clerk:7/triggers"


async def told(path: str, *, method: str = "POST", **scope: str):
    """Who has got the request: the agents that the handler was asked for, or the router."""
    got = []

    async def router(scope, receive, send):
        got.append("router")

    async def handler(request):
        got.append(request.path_params["agent"])
        return PlainTextResponse("done")

    async def send(message):
        del message

    sent = {"type": "http", "method": method, "path": path, "headers": [], "query_string": b"", **scope}
    await TriggerPath(router, handler, (), None)(sent, None, send)
    return got


@pytest.mark.parametrize("agent", ["clerk", "clerk:7", "Zürich", "a b", "%2F", "triggers"])
async def test_a_trigger_goes_to_its_handler_with_the_agent_that_stands_in_the_path(agent):
    assert await told(f"/v1/agents/{agent}/triggers") == [agent]


@pytest.mark.parametrize(
    "path",
    [
        "/v1/agents//triggers",
        "/v1/agents/triggers",
        "/v1/agents/a/b/triggers",
        f"{PATH}/",
        f"{PATH}\n",
        f"/{PATH}",
        "/v1/runs",
    ],
)
async def test_any_other_path_goes_to_the_router(path):
    assert await told(path) == ["router"]


async def test_what_is_no_post_and_what_lies_below_another_root_goes_to_the_router():
    assert await told(PATH, method="GET") == ["router"]
    assert await told(PATH, type="websocket") == ["router"]
    assert await told(PATH, root_path="/v1") == ["router"]


async def test_an_error_that_is_known_has_an_answer_and_any_other_is_raised():
    answers = []

    async def handler(request):
        raise ValueError(request.path_params["agent"])

    async def on_error(request, error):
        return PlainTextResponse(f"wrong: {error}", 422)

    async def send(message):
        answers.append(message)

    scope = {"type": "http", "method": "POST", "path": PATH, "headers": [], "query_string": b""}
    await TriggerPath(None, handler, (ValueError,), on_error)(dict(scope), None, send)
    with pytest.raises(ValueError, match="clerk:7"):
        await TriggerPath(None, handler, (KeyError,), on_error)(dict(scope), None, send)

    assert (answers[0]["status"], answers[1]["body"]) == (422, b"wrong: clerk:7")
