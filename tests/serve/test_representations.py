from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import Any, Literal, NotRequired, get_args

import pytest
from msgspec import Struct
from typing_extensions import TypedDict

from owlclaw_ray import wire
from owlclaw_ray.domain.governance import Risk
from owlclaw_ray.domain.trigger import BusyPolicy, TriggerKind
from owlclaw_ray.ids import RunId
from serve.representations import Representation


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Part(Struct):
    size: int


class Thing(Struct):
    run_id: RunId
    colour: Colour
    parts: tuple[Part, ...]
    seen_at: datetime | None = None


class PartBody(TypedDict):
    size: int


class ThingBody(TypedDict):
    run_id: str
    colour: Literal["red", "blue"]
    parts: list[PartBody]
    seen_at: str | None
    more: NotRequired[str]


class Named(TypedDict):
    name: str


class Uncoloured(TypedDict):
    colour: Literal["red"]


class Numbered(TypedDict):
    run_id: int


class Seen(TypedDict):
    seen_at: str


def test_a_body_is_told_by_its_type():
    represent = Representation(ThingBody, Thing)

    assert represent(Thing(RunId("run_1"), Colour.BLUE, (Part(3),))) == {
        "run_id": "run_1",
        "colour": "blue",
        "parts": [{"size": 3}],
        "seen_at": None,
    }


@pytest.mark.parametrize(
    ("shape", "said"),
    [(Named, "Thing has no name"), (Uncoloured, "Thing.colour"), (Numbered, "Thing.run_id"), (Seen, "Thing.seen_at")],
)
def test_a_body_that_does_not_fit_its_type_is_an_error_before_the_first_request(shape: Any, said: str):
    with pytest.raises(TypeError, match=said):
        Representation(shape, Thing)


def test_a_rule_for_a_field_that_the_body_does_not_have_is_an_error():
    with pytest.raises(TypeError, match="PartBody has no fields"):
        Representation(PartBody, Part, weight="size")


def test_what_requests_may_say_are_the_members_of_our_enums():
    assert get_args(wire.BusyPolicy) == tuple(each.value for each in BusyPolicy)
    assert get_args(wire.RiskLevel) == tuple(each.value for each in Risk)
    assert get_args(wire.TriggerKind) == tuple(each.value for each in TriggerKind)
    assert {*get_args(wire.SubmittedKind)} < {*get_args(wire.TriggerKind)}
