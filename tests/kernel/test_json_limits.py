import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from owlclaw_ray.kernel.json_limits import MAX_DEPTH, JsonLimitError, check_limits, read_json

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
)


@given(VALUES)
def test_every_value_that_can_be_written_is_read_as_it_is(value):
    assert read_json(orjson.dumps(value)) == value
    check_limits(value)


@pytest.mark.parametrize("brackets", ["[]", '{"a":}'])
def test_a_hundred_levels_are_read_and_one_more_is_not(brackets):
    before, after = brackets[:-1], brackets[-1]
    assert read_json(f"{before * (MAX_DEPTH - 1)}[]{after * (MAX_DEPTH - 1)}".encode())
    with pytest.raises(JsonLimitError, match="lies deeper than 100 levels"):
        read_json(f"{before * MAX_DEPTH}[]{after * MAX_DEPTH}".encode())


BRACKETS = st.text('[]{}"\\a', max_size=8)
NESTED = st.recursive(
    BRACKETS | st.none(), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(BRACKETS, inner, max_size=3)
)


def levels_of(value):
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(levels_of, inner), default=0)


def nested(text, levels):
    value = text
    for _ in range(levels):
        value = [text, {"a": text}, value]
    return value


@pytest.mark.parametrize("text", ["]", "}]", "[{", '"]', '"', '\\"]', "\\", "\\\\", '\\"', "]\n[", "a]"])
def test_levels_are_counted_whatever_brackets_and_quotes_the_texts_hold(text):
    assert read_json(orjson.dumps(nested(text, MAX_DEPTH - 1))) == nested(text, MAX_DEPTH - 1)
    with pytest.raises(JsonLimitError, match="lies deeper than 100 levels"):
        read_json(orjson.dumps(nested(text, MAX_DEPTH + 1)))


@given(NESTED, st.integers(MAX_DEPTH - 3, MAX_DEPTH + 2))
def test_levels_are_counted_in_any_document(value, around):
    for at in range(around):
        value = [value] if at % 2 else {"": value}
    if levels_of(value) > MAX_DEPTH:
        with pytest.raises(JsonLimitError, match="lies deeper than 100 levels"):
            read_json(orjson.dumps(value))
    else:
        assert read_json(orjson.dumps(value)) == value


@pytest.mark.parametrize("levels", [101, 252, 254, 500, 1_023, 1_025, 200_000])
def test_any_depth_is_refused_in_the_same_way(levels):
    with pytest.raises(JsonLimitError, match="deeper than 100 levels"):
        read_json(b"[" * levels + b"]" * levels)


@pytest.mark.parametrize(
    ("document", "place", "what"),
    [
        (b'{"a": [1, {"b": NaN}]}', ".a[1].b", "is nan, which is no number in JSON"),
        (b'{"a": -Infinity}', ".a", "is -inf, which is no number in JSON"),
        (b'{"a": 18446744073709551616}', ".a", "is an integer beyond 64 bits: send it as a text"),
        (b"[-9223372036854775809]", "[0]", "is an integer beyond 64 bits: send it as a text"),
        (b'{"a": [1, -' + b"9" * 10_000 + b"]}", ".a[1]", "is an integer beyond 64 bits: send it as a text"),
        (b"[" + b"1" * 500_000 + b"]", "[0]", "is an integer beyond 64 bits: send it as a text"),
        (b'["whole", "half \\ud800"]', "[1]", "has half a character (a lone surrogate) at 5"),
        (b'{"x\\udc00": 1}', "", "has half a character (a lone surrogate) at 1"),
        (b'["\xed\xa0\x80", 1e999]', "[1]", "is inf, which is no number in JSON"),
    ],
)
def test_what_cannot_be_kept_is_refused_with_its_place(document, place, what):
    with pytest.raises(JsonLimitError) as caught:
        read_json(document)

    assert (caught.value.place, caught.value.what) == (place, what)


@pytest.mark.parametrize("document", [b"", b"{", b"nope", b"[1,]", b"\xff", b"[" * 50])
def test_what_is_no_json_is_said_to_be_none(document):
    with pytest.raises(orjson.JSONDecodeError):
        read_json(document)


def test_long_digits_that_are_no_integers_beyond_64_bits_are_read():
    assert read_json(b'["18446744073709551616", 0.12345678901234567890, 18446744073709551615]') == [
        "18446744073709551616",
        0.12345678901234567890,
        2**64 - 1,
    ]
