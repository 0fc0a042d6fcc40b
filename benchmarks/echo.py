"""The cheapest application that Serve can run: every POST gets 202 and a small JSON. The baseline of *ingress* and *startup*."""

from __future__ import annotations

from typing import Any

from benchmarks.bare_ray import serve

ANSWER = b'{"run_id":"run_0","agent":"bench:0","status":"queued","scripted":true,"duplicate":false}'


def application() -> Any:
    """Return the application, with the options of OwlClaw's own deployment."""
    from fastapi import FastAPI
    from ray import serve as ray_serve
    from starlette.requests import Request
    from starlette.responses import Response

    from serve.loopback import keep_replica_on_loopback

    async def trigger(request: Request) -> Response:
        await request.body()
        return Response(ANSWER, 202, media_type="application/json")

    def api() -> FastAPI:
        keep_replica_on_loopback()
        app = FastAPI()
        app.add_route("/v1/agents/{agent}/triggers", trigger, methods=["POST"])
        return app

    deployment = ray_serve.deployment(num_replicas=1, max_ongoing_requests=2_000, ray_actor_options={"num_cpus": 0})
    return deployment(ray_serve.ingress(api)()).bind()


if __name__ == "__main__":
    serve(application)
