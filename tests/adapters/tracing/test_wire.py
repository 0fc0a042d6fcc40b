"""What is written by hand, read by the package that OpenTelemetry makes from its own definitions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

from owlclaw_ray.adapters.tracing.wire import event_bytes, request_of, span_bytes

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
IDS = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")

texts = st.text(max_size=300)
numbers = st.integers(-(2**63), 2**63 - 1)
values = st.one_of(texts, st.booleans(), numbers, st.floats(allow_nan=False), st.lists(texts, max_size=3))
pairs = st.dictionaries(texts, values, max_size=6)
times = st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - UTC is added


def nanoseconds(at):
    return (at - EPOCH) // timedelta(microseconds=1) * 1_000


def any_value(value):
    match value:
        case str():
            return AnyValue(string_value=value)
        case bool():
            return AnyValue(bool_value=value)
        case int():
            return AnyValue(int_value=value)
        case float():
            return AnyValue(double_value=value)
        case _:
            return AnyValue(array_value=ArrayValue(values=[any_value(each) for each in value]))


def key_values(attributes):
    return [KeyValue(key=key, value=any_value(value)) for key, value in attributes.items()]


@given(name=texts, parent=st.sampled_from(["", "00f067aa0ba902b8"]), start=times, end=times, attributes=pairs)
def test_a_span_has_its_ids_times_and_attributes(name, parent, start, end, attributes):
    written = span_bytes(name, (*IDS, parent), (start, end), attributes)

    assert Span.FromString(written) == Span(
        name=name,
        trace_id=bytes.fromhex(IDS[0]),
        span_id=bytes.fromhex(IDS[1]),
        parent_span_id=bytes.fromhex(parent),
        kind=Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=nanoseconds(start),
        end_time_unix_nano=nanoseconds(end),
        attributes=key_values(attributes),
    )


@given(error=texts, happened=texts, at=times, attributes=pairs)
def test_an_error_and_an_event_are_of_their_span(error, happened, at, attributes):
    event = event_bytes(happened, at, attributes)
    written = span_bytes("call", (*IDS, ""), (EPOCH, at), {}, events=[event], error=error, asks_elsewhere=True)

    read = Span.FromString(written)
    assert read.status == Status(code=Status.STATUS_CODE_ERROR, message=error)
    assert read.kind == Span.SPAN_KIND_CLIENT
    assert list(read.events) == [
        Span.Event(name=happened, time_unix_nano=nanoseconds(at), attributes=key_values(attributes))
    ]


@given(resource=pairs, scope=st.tuples(texts, texts), names=st.lists(texts, max_size=4))
def test_a_request_is_the_spans_of_one_resource_and_scope(resource, scope, names):
    spans = [span_bytes(name, (*IDS, ""), (EPOCH, EPOCH), {"text": name * 100}) for name in names]

    assert ExportTraceServiceRequest.FromString(request_of(resource, scope, spans)) == ExportTraceServiceRequest(
        resource_spans=[
            ResourceSpans(
                resource=Resource(attributes=key_values(resource)),
                scope_spans=[
                    ScopeSpans(
                        scope=InstrumentationScope(name=scope[0], version=scope[1]),
                        spans=[Span.FromString(each) for each in spans],
                    )
                ],
            )
        ]
    )


def test_values_that_are_equal_and_of_another_type_stay_apart():
    attributes = {"truth": True, "whole": 1, "broken": 1.0, "text": "1"}

    for _ in range(2):
        read = Span.FromString(span_bytes("call", (*IDS, ""), (EPOCH, EPOCH), attributes))
        assert [pair.value.WhichOneof("value") for pair in read.attributes] == [
            "bool_value",
            "int_value",
            "double_value",
            "string_value",
        ]


def test_half_a_character_becomes_a_question_mark():
    written = span_bytes("a\ud800b", (*IDS, ""), (EPOCH, EPOCH), {"said": "\udfff", "long": "\ud800" * 100})

    read = Span.FromString(written)
    assert read.name == "a?b"
    assert [pair.value.string_value for pair in read.attributes] == ["?", "?" * 100]


@pytest.mark.parametrize(("value", "error"), [(2**63, OverflowError), (None, TypeError), ({}, TypeError)])
def test_a_value_that_no_attribute_can_have_is_an_error(value, error):
    with pytest.raises(error):
        span_bytes("call", (*IDS, ""), (EPOCH, EPOCH), {"what": value})
