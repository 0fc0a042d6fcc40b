from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from owlclaw_ray.domain.tracing import TraceParent, run_span, span_of
from owlclaw_ray.ids import RunId

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
RUN = RunId("run_01")


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        (f"00-{TRACE}-{SPAN}-01", 1),
        (f"00-{TRACE}-{SPAN}-00", 0),
        (f"  00-{TRACE}-{SPAN}-01 ", 1),
        (f"cc-{TRACE}-{SPAN}-01-what-the-future-will-be-like", 1),
    ],
)
def test_a_traceparent_of_this_or_a_later_version_is_read(text, flags):
    assert TraceParent.parse(text) == TraceParent(TRACE, SPAN, flags)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-1",
    ],
)
def test_one_that_may_not_be_used_counts_as_none(text):
    assert TraceParent.parse(text) is None


@given(st.text(max_size=80))
def test_whatever_comes_is_read_or_not_and_never_an_error(text):
    found = TraceParent.parse(text)

    assert found is None or TraceParent.parse(str(found)) is not None


def test_a_run_has_a_trace_of_its_own_or_its_callers_and_the_same_each_time():
    own, callers = run_span(RUN), run_span(RUN, f"00-{TRACE}-{SPAN}-00")

    assert own == run_span(RUN)
    assert own.trace_id != run_span(RunId("run_02")).trace_id
    assert str(callers) == f"00-{TRACE}-{own.span_id}-00"
    assert TraceParent.parse(str(own)) == own


def test_spans_of_a_run_differ():
    ids = {span_of(RUN, "tool", call) for call in ("a", "b")} | {span_of(RUN, "toola"), span_of(RUN, "run")}

    assert len(ids) == 4
