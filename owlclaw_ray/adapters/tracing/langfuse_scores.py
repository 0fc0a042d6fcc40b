"""Scores, as Langfuse's public API takes them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from urllib.parse import urlsplit

import httpx

from owlclaw_ray.adapters.tracing.content import Content
from owlclaw_ray.adapters.tracing.otlp import PASSING
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.score import Score, ScoreValue
from owlclaw_ray.errors import ScoreRefusedError
from owlclaw_ray.ports.tracing import ReceiverError

_PATH = "/api/public/scores"
_TOLD = 200


class LangfuseScores:
    """Implements ScoreReceiver. `url` is any of the Langfuse server's; comments leave as what was said in runs does."""

    def __init__(self, url: str, headers: Mapping[str, str], content: Content, timeout: float) -> None:
        parts = urlsplit(url)
        base = parts.path.partition("/api/public/")[0]
        self._where, self._content, self._timeout = parts.netloc, content, timeout
        self._url, self._headers = f"{parts.scheme}://{parts.netloc}{base}{_PATH}", dict(headers)

    async def keep(self, score: Score) -> None:
        """See ScoreReceiver.keep."""
        try:
            async with asyncio.timeout(self._timeout), httpx.AsyncClient(timeout=self._timeout) as client:
                answer = await client.post(self._url, json=self._body(score), headers=self._headers)
        except TimeoutError as error:
            raise ReceiverError(f"{self._where} did not answer within {self._timeout:g} s") from error
        except httpx.HTTPError as error:
            raise ReceiverError(f"{self._where}: {type(error).__name__}: {error}") from error
        if answer.is_success:
            return
        message = f"{self._where} answered {answer.status_code}: {answer.text[:_TOLD]}"
        if answer.status_code in PASSING or not answer.is_client_error:
            raise ReceiverError(message)
        raise ScoreRefusedError(message)

    def _body(self, score: Score) -> JsonObject:
        said = score.judgement
        kind, value = _typed(said.value)
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
            body["comment"] = self._content.text(said.comment, suspect=True)
        return body


def _typed(value: ScoreValue) -> tuple[str, float | str]:
    match value:
        case bool():
            return "BOOLEAN", int(value)
        case str():
            return "CATEGORICAL", value
        case _:
            return "NUMERIC", value
