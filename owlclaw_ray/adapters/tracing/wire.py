"""OTLP's messages of traces as the bytes that protobuf makes of them, written without making objects of them first.

With objects, most of the time that an export takes went into them. Numbers of fields are those of `opentelemetry-proto`, which never
change; a test reads everything back with that package.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TypeAlias

Value: TypeAlias = str | bool | int | float | list[str]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_ONE_BYTE, _TWO_BYTES = 1 << 7, 1 << 14
_INTERNAL, _CLIENT = b"\x30\x01", b"\x30\x03"
"""What kind a span is: `kind`, an enum."""
_ERROR = b"\x18\x02"
"""`code` of a status."""
_SPAN_ATTRIBUTE, _EVENT_ATTRIBUTE, _RESOURCE_ATTRIBUTE = b"\x4a", b"\x1a", b"\x0a"
_WIDEST = 1 << 63
_OFTEN = 64
"""Characters of a value that may come again in other spans; most do."""


def request_of(resource: Mapping[str, Value], scope: tuple[str, str], spans: Iterable[bytes]) -> bytes:
    """Return an ExportTraceServiceRequest: spans of one resource and of one scope, which has a name and a version."""
    told = _field(b"\x0a", b"".join(_attributes(_RESOURCE_ATTRIBUTE, resource)))
    by = _field(b"\x0a", _text(b"\x0a", scope[0]) + _text(b"\x12", scope[1]))
    return _field(b"\x0a", told + _field(b"\x12", by + b"".join(_field(b"\x12", span) for span in spans)))


def span_bytes(
    name: str,
    ids: tuple[str, str, str],
    times: tuple[datetime, datetime],
    attributes: Mapping[str, Value],
    *,
    events: Iterable[bytes] = (),
    error: str | None = None,
    asks_elsewhere: bool = False,
) -> bytes:
    """Return a Span. `ids` are hexadecimal: those of its trace, of itself, and of its parent, which is empty for a root."""
    trace_id, span_id, parent_id = map(bytes.fromhex, ids)
    start, end = map(_nanoseconds, times)
    return b"".join(
        (
            _field(b"\x0a", trace_id),
            _field(b"\x12", span_id),
            _field(b"\x22", parent_id) if parent_id else b"",
            _text(b"\x2a", name),
            _CLIENT if asks_elsewhere else _INTERNAL,
            struct.pack("<BQBQ", 0x39, start, 0x41, end),
            *_attributes(_SPAN_ATTRIBUTE, attributes),
            *(_field(b"\x5a", event) for event in events),
            b"" if error is None else _field(b"\x7a", _text(b"\x12", error) + _ERROR),
        )
    )


def event_bytes(name: str, at: datetime, attributes: Mapping[str, Value]) -> bytes:
    """Return an Event of a span."""
    when = struct.pack("<BQ", 0x09, _nanoseconds(at))
    return b"".join((when, _text(b"\x12", name), *_attributes(_EVENT_ATTRIBUTE, attributes)))


def _attributes(tag: bytes, attributes: Mapping[str, Value]) -> Iterable[bytes]:
    for key, value in attributes.items():
        if isinstance(value, list) or (isinstance(value, str) and len(value) > _OFTEN):
            yield _attribute(tag, key, value)
        else:
            yield _repeated(tag, key, value)


def _attribute(tag: bytes, key: str, value: Value) -> bytes:
    return _field(tag, _text(b"\x0a", key) + _field(b"\x12", _any(value)))


_repeated = lru_cache(maxsize=4096, typed=True)(_attribute)


def _any(value: Value) -> bytes:
    match value:
        case str():
            return _text(b"\x0a", value)
        case bool():
            return b"\x10\x01" if value else b"\x10\x00"
        case int():
            return b"\x18" + _int64(value)
        case float():
            return struct.pack("<Bd", 0x21, value)
        case list():
            return _field(b"\x2a", b"".join(_field(b"\x0a", _any(each)) for each in value))
    raise TypeError(f"a span has no attributes that are {type(value).__name__}")


def _text(tag: bytes, text: str) -> bytes:
    return _field(tag, text.encode("utf-8", "replace"))


def _field(tag: bytes, content: bytes) -> bytes:
    return tag + _varint(len(content)) + content


def _int64(number: int) -> bytes:
    if not -_WIDEST <= number < _WIDEST:
        raise OverflowError(f"{number} has more than 64 bits")
    return _varint(number % (1 << 64))


def _varint(number: int) -> bytes:
    return _SHORT[number] if number < _TWO_BYTES else _written(number)


def _written(number: int) -> bytes:
    written = bytearray()
    while number >= _ONE_BYTE:
        written.append(0x80 | number & 0x7F)
        number >>= 7
    written.append(number)
    return bytes(written)


_SHORT = tuple(map(_written, range(_TWO_BYTES)))


def _nanoseconds(at: datetime) -> int:
    return (at - _EPOCH) // _MICROSECOND * 1_000
