"""What schemathesis cannot know of this API: signatures of webhooks, and what the formats of its document mean."""

from __future__ import annotations

import hashlib
import hmac
from zoneinfo import available_timezones

import schemathesis
from hypothesis import strategies as st
from requests.auth import AuthBase

from owlclaw_ray.schedules.cron import MACROS
from owlclaw_ray.wire import moment
from serve.trigger_request import MAX_WAIT_SECONDS
from tests.contract.world import SECRET

_NUMBERS = (range(60), range(24), range(1, 29), range(1, 13), range(8))
_FIELDS = [
    st.one_of(
        st.just("*"),
        st.sampled_from(numbers).map(str),
        st.integers(1, 30).map("*/{}".format),
        st.lists(st.sampled_from(numbers), min_size=2, max_size=4, unique=True).map(
            lambda some: ",".join(map(str, some))
        ),
    )
    for numbers in _NUMBERS
]

schemathesis.openapi.format("cron", st.one_of(st.sampled_from(sorted(MACROS)), st.tuples(*_FIELDS).map(" ".join)))
schemathesis.openapi.format("iana-time-zone", st.sampled_from(sorted(available_timezones())))
schemathesis.openapi.format("uri", st.from_regex(r"https://[a-z]{1,20}\.example\.org/[a-z]{0,20}", fullmatch=True))


class Signed(AuthBase):
    """Signs a webhook as GitHub does."""

    def __call__(self, request):
        body = request.body or b""
        digest = hmac.new(SECRET.encode(), body.encode() if isinstance(body, str) else body, hashlib.sha256)
        request.headers["X-Hub-Signature-256"] = f"sha256={digest.hexdigest()}"
        return request


schemathesis.auth.set_from_requests(Signed()).apply_to(path="/v1/webhooks/{source}", method="POST")


@schemathesis.hook
def before_call(context, case, kwargs):
    """Say what JSON Schema cannot ask for: a time to come, two times in order, the arguments of the tool. And wait for nobody."""
    if _is_wait((case.query or {}).get("wait")):
        case.query["wait"] = 0.1
    if case.path == "/v1/agents/{agent}/schedules" and _has_times(case.body, "at"):
        case.body["at"] = "2999-01-01T00:00:00Z"
    if case.path == "/v1/schedules/{schedule_id}/backfill" and _has_times(case.body, "since", "until"):
        case.body |= {"since": "2026-11-02T00:00:00Z", "until": "2026-11-02T01:00:00Z"}
    decides = case.path == "/v1/approvals/{approval_id}/decision" and isinstance(case.body, dict)
    if decides and isinstance(case.body.get("arguments"), dict):
        case.body["arguments"] = {"order": "18"}


def _is_wait(value):
    try:
        return 0 < float(value) <= MAX_WAIT_SECONDS
    except (TypeError, ValueError):
        return False


def _has_times(body, *names):
    try:
        return isinstance(body, dict) and all(moment(body[name]) for name in names)
    except (KeyError, ValueError):
        return False
