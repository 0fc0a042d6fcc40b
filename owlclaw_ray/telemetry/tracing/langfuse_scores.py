"""Scores, as Langfuse's public API takes them."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

import httpx

from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.score import Score
from owlclaw_ray.errors import ScoreRefusedError
from owlclaw_ray.telemetry.tracing.content import ContentAttributes
from owlclaw_ray.telemetry.tracing.otlp import refusal_of

_PATH = "/api/public/scores"


class LangfuseScores:
    """Implements ScoreReceiver. `url` is any of the Langfuse server's; comments are masked and redacted as the content of runs is."""

    def __init__(self, url: str, headers: Mapping[str, str], content: ContentAttributes, timeout: float) -> None:
        parts = urlsplit(url)
        base = parts.path.partition("/api/public/")[0]
        self._content, self._timeout = content, timeout
        self._url, self._headers = f"{parts.scheme}://{parts.netloc}{base}{_PATH}", dict(headers)

    async def keep(self, score: Score) -> None:
        """See ScoreReceiver.keep."""
        async with httpx.AsyncClient(timeout=self._timeout) as client:
            answering = client.post(self._url, json=self._body(score), headers=self._headers)
            if refusal := await refusal_of(answering, self._url, self._timeout):
                raise ScoreRefusedError(refusal)

    def _body(self, score: Score) -> JsonObject:
        said = score.judgement
        kind, value = "NUMERIC", said.value
        if isinstance(value, bool):
            kind, value = "BOOLEAN", int(value)
        elif isinstance(value, str):
            kind = "CATEGORICAL"
        body: JsonObject = {
            "id": score.score_id,
            "traceId": score.trace_id,
            "name": said.name,
            "value": value,
            "dataType": kind,
            "timestamp": score.at.isoformat(),
        }
        if score.span_id:
            body["observationId"] = score.span_id
        if said.comment:
            body["comment"] = self._content.of_tenant(score.tenant).text(said.comment)
        return body
