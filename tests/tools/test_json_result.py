import math
from collections import namedtuple
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from unittest.mock import ANY
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Struct, UnsetType
from pydantic import BaseModel, ConfigDict, FieldSerializationInfo, field_serializer

from owlclaw_ray.tools.json_result import NotJsonError, to_json, within_limit

Pair = namedtuple("Pair", "left right")  # noqa: PYI024 (as psutil returns them)


class Model(BaseModel):
    at: datetime
    path: Path


@dataclass
class Data:
    x: int
    inner: tuple[int, ...]


class NamedActor(Struct, rename={"first_part": "firstPart"}):
    first_part: object
    second: int | UnsetType = UNSET
    _own: object = None


class Holder(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    inner: NamedActor


class Reading(BaseModel):
    value: float
    unit: str | None = None
    more: Any = None
    seen: float = 0.0

    @field_serializer("seen")
    def _or_never(self, seen: float) -> float | str:
        return seen if math.isfinite(seen) else "never"


@dataclass
class Later:
    """A field of it is set later, or never."""

    x: object = None
    y: int = field(init=False)


class OnlyJson(BaseModel):
    x: float | None = None

    @field_serializer("x")
    def _in_json(self, x: float | None, info: FieldSerializationInfo) -> float | None:
        if info.mode == "python":
            raise ValueError("only in JSON")
        return x


class Failing(BaseModel):
    x: object = None

    @field_serializer("x")
    def _fail(self, x: object) -> object:
        raise RuntimeError("the till is shut")


class Infinite(Enum):
    MOST = math.inf


class Colour(Enum):
    RED = "red"


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "json"),
    [
        (None, None),
        ("文", "文"),
        (1.5, 1.5),
        (True, True),
        ([1, {"a": None}], [1, {"a": None}]),
        ((1, 2), [1, 2]),
        (Pair(1, Pair(2, 3)), {"left": 1, "right": {"left": 2, "right": 3}}),
        (Data(1, (2,)), {"x": 1, "inner": [2]}),
        (
            NamedActor(Data(1, ()), _own=Pair(1, 2)),
            {"firstPart": {"x": 1, "inner": []}, "_own": {"left": 1, "right": 2}},
        ),
        ([NamedActor({Colour.RED}, 3)], [{"firstPart": ["red"], "second": 3, "_own": None}]),
        (Holder(inner=NamedActor(1)), {"inner": {"firstPart": 1, "_own": None}}),
        (Reading(value=1, seen=math.inf), {"value": 1.0, "unit": None, "more": None, "seen": "never"}),
        (Later(), {"x": None}),
        ([Later(), Reading(value=1, more=[1])], [{"x": None}, {"value": 1.0, "unit": None, "more": [1], "seen": 0.0}]),
        (OnlyJson(x=1.0), {"x": 1.0}),
        (Reading(value=1, more={1.0, None}), {"value": 1.0, "unit": None, "more": ANY, "seen": 0.0}),
        ({None: 1, "None": 2}, {"null": 1, "None": 2}),
        ({1: None, Colour.RED: Data(None, (None,))}, {"1": None, "red": {"x": None, "inner": [None]}}),
        (Model(at=NOON, path=Path("a")), {"at": "2026-01-01T12:00:00Z", "path": "a"}),
        ({"at": NOON, "on": date(2026, 1, 1)}, {"at": "2026-01-01T12:00:00+00:00", "on": "2026-01-01"}),
        ({1: Colour.RED, "id": UUID(int=1)}, {"1": "red", "id": "00000000-0000-0000-0000-000000000001"}),
        ({"s": {"b", "a"}, "d": Decimal("1.10"), "p": Path("x/y")}, {"s": ["a", "b"], "d": "1.10", "p": "x/y"}),
    ],
)
def test_values_become_json(value, json):
    """tool-registry: simple tools return str, dict, list, int, bool or None."""
    assert to_json(value) == json


@pytest.mark.parametrize("value", [object(), [lambda: 1], {"a": b"bytes"}, {"x": {Colour: 1}}, 2**70, "\ud800", 1j])
def test_what_is_not_json_is_named(value):
    with pytest.raises(NotJsonError, match=type(value).__qualname__):
        to_json(value)


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"a": [1, math.nan]}, r"a\[1\] is nan"),
        ([-math.inf], r"\[0\] is -inf"),
        (math.nan, "the document is nan"),
        ({"文": {"b": "\ud800x"}}, r"文\.b has half a character"),
        ({"a": [2**70]}, r"a\[0\] is an integer beyond 64 bits"),
        (Reading(value=math.nan), "value is nan"),
        ({"all": [Reading(value=1), Reading(value=math.inf)]}, r"all\[1\]\.value is inf"),
        (Reading(value=1, more=[{"a": -math.inf}]), r"more\[0\]\.a is -inf"),
        (Data(math.nan, ()), "x is nan"),
        (Data(1, (Data(-math.inf, ()),)), r"inner\[0\]\.x is -inf"),
        (Holder(inner=NamedActor(math.nan)), r"inner\.firstPart is nan"),
        (Pair(1, (math.nan,)), r"right\[0\] is nan"),
        ({1: math.nan}, "1 is nan"),
        ({"a": {math.nan}}, r"a\[0\] is nan"),
        ({"a": {math.nan: 1}}, r"a\.\(key nan\) is nan"),
        ({-math.inf: 1, "-inf": 2}, r"\(key -inf\) is -inf"),
        ({Infinite.MOST: 1}, r"\(key inf\) is inf"),
        (Reading(value=1, more={math.nan: 1}), r"more\.\(key nan\) is nan"),
        (Reading(value=1, more={1: math.nan}), r"more\.1 is nan"),
        (Reading(value=1, more={(math.nan, 1)}), r"more\[0\]\[0\] is nan"),
        (Reading(value=1, more=NamedActor(math.nan)), r"more\.firstPart is nan"),
        (Later(math.nan), "x is nan"),
        ([Infinite.MOST], r"\[0\] is inf"),
    ],
)
def test_what_json_cannot_say_is_named_with_its_place(value, place):
    with pytest.raises(NotJsonError, match=place):
        to_json(value)


def test_a_number_that_json_cannot_say_is_found_in_every_order_of_a_set():
    numbers = [float("nan") for _ in range(100)]  # each has a hash of its own
    for each in numbers:
        value = Reading(value=1, more={each, *(float(other) for other in range(5))})
        with pytest.raises(NotJsonError, match=r"more\[5\] is nan"):
            to_json(value)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (OnlyJson(), "only in JSON"),
        ([OnlyJson()], "only in JSON"),
        (Failing(), "the till is shut"),
        ([None, Failing()], "the till is shut"),
        ([None, Reading(value=1, more=Later())], "'Later' object has no attribute 'y'"),
    ],
)
def test_a_model_that_cannot_be_written_is_told_with_its_reason(value, why):
    with pytest.raises(NotJsonError, match=f"the value of type {type(value).__name__} is not JSON: .*{why}"):
        to_json(value)


def test_a_value_that_contains_itself_is_not_json():
    loop = []
    loop.append(loop)
    with pytest.raises(NotJsonError, match="list"):
        to_json(loop)


def test_a_value_deeper_than_a_hundred_levels_is_not_json():
    value: list = []
    for _ in range(100):
        value = [value]

    with pytest.raises(NotJsonError, match="deeper than 100 levels"):
        to_json(value)
    assert to_json(value[0]) == value[0]


def test_content_within_the_limit_is_kept_as_it_is():
    content = {"a": "文" * 10}
    assert within_limit(content, 100) == (content, {})


@given(st.text(min_size=1), st.integers(1, 40))
def test_longer_content_is_cut_between_characters_and_says_so(text, limit):
    encoded = text.encode()
    content, metadata = within_limit(text, limit)
    if len(encoded) <= limit:
        assert (content, metadata) == (text, {})
    else:
        assert metadata["truncated"] is True
        assert metadata["total_bytes"] == len(encoded)
        kept = text.encode()[: metadata["shown_bytes"]].decode()
        assert limit - 4 < metadata["shown_bytes"] <= limit
        assert content == f"{kept}\n…[cut: the first {metadata['shown_bytes']} of {len(encoded)} bytes]"


def test_a_long_object_is_cut_as_json_text():
    content, metadata = within_limit({"a": "x" * 100}, 10)
    assert content.startswith('{"a":"xxxx\n…[cut')
    assert metadata["total_bytes"] == 108
