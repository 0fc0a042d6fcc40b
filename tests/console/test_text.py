from __future__ import annotations

import json
import re

import pytest

from console.jinja import duration, money
from console.text import brief, clipped, field, json_text, pretty, visible


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("\x1b[31mred\x1b[0m", "␛[31mred␛[0m"),
        ("a\x00b\x07\x7f", "a␀b␇␡"),
        ("user\u202egnp.exe", "user⟨U+202E⟩gnp.exe"),
        ("\u2066x\u2069 \u200f \ufeff \u200b", "⟨U+2066⟩x⟨U+2069⟩ ⟨U+200F⟩ ⟨U+FEFF⟩ ⟨U+200B⟩"),
        ("tag\U000e0041", "tag⟨U+E0041⟩"),
        ("soft\u00adhyphen", "soft⟨U+00AD⟩hyphen"),
        ("blank\u3164\u2800\uffa0\u115f", "blank⟨U+3164⟩⟨U+2800⟩⟨U+FFA0⟩⟨U+115F⟩"),
        ("smuggled\ufe00\U000e0101\ufe0f", "smuggled⟨U+FE00⟩⟨U+E0101⟩⟨U+FE0F⟩"),
        ("\x9b2J", "⟨U+009B⟩2J"),
        ("one\r\ntwo\rthree", "one\ntwo␍three"),
        ("看一下\tनमस्ते 👩\u200d🔬", "看一下\tनमस्ते 👩\u200d🔬"),
        ("☎\ufe0f 葛\U000e0100城", "☎\ufe0f 葛\U000e0100城"),
    ],
)
def test_what_moves_colours_turns_or_hides_is_made_visible_and_writing_is_not(text, seen):
    assert visible(text) == seen


@pytest.mark.parametrize(
    "value",
    [{"a\u202e": ["\x1b\x00", "\U000e0041", 1.5, None]}, {"s": "a\ufe01\U000e0155\u3164"}, {"long": ["x\u2028" * 50]}],
)
def test_json_is_shown_so_that_it_can_be_written_back(value):
    shown = pretty(value)

    assert json.loads(shown) == value
    assert visible(shown) == shown


def test_json_in_a_text_is_laid_out_and_other_text_stays():
    assert pretty('{"a":1}') == '{"a":1}'
    assert "\n" in pretty(json.dumps({"a": "x" * 80}))
    assert pretty("not { json") == "not { json"


@pytest.mark.parametrize("room", ["", "x" * 80])
@pytest.mark.parametrize("number", ["123456789012345678901", "1.10", "1e5", "-0.0", "1E+5"])
def test_json_in_a_text_keeps_its_numbers_names_and_strings_as_they_are_written(number, room):
    said = f'{{"order": {number}, "a": 1, "a": 2, "r": "{room}", "e": [{{}}], "\\u8ba2\\u5355": "\\u4ef7"}}'

    shown = pretty(said)

    assert re.sub(r"\s", "", shown) == re.sub(
        r"\s", "", said.replace("\\u8ba2\\u5355", "订单").replace("\\u4ef7", "价")
    )
    assert ("\n" in shown) == bool(room)


@pytest.mark.parametrize("text", ['"价格"', "7.10", "null", " true"])
def test_a_text_that_is_one_json_value_is_shown_as_it_is_and_a_string_in_it_as_what_it_says(text):
    assert pretty(text) == (json.loads(text) if text[0] == '"' else text)


@pytest.mark.parametrize("depth", [30, 254, 255, 300, 1_024, 1_025, 100_000])
@pytest.mark.parametrize(("opens", "closes"), [("[", "]"), ('{"a":', "}")])
def test_json_of_any_depth_in_a_text_is_shown_and_grows_little(depth, opens, closes):
    said = opens * depth + "1,2" * (opens == "[") + "0" * (opens != "[") + closes * depth

    shown = pretty(said)

    assert re.sub(r"\s", "", shown) == said
    assert len(shown) < 5_000 + 3 * len(said)


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("order\u200b17", "order&#8203;17"),
        ("\u202eexe <b>&\"'", "&#8238;exe &lt;b&gt;&amp;&#34;&#39;"),
        ("\x07\x1b\x7f\r\n\t", "&#7;&#27;&#127;&#13;\n\t"),
        ("\x9b2J", "\x9b2J"),
        ("订单\U000e0041", "订单&#917569;"),
        (None, ""),
        (7, "7"),
    ],
)
def test_a_field_has_exactly_its_text_and_its_source_moves_nothing(text, source):
    assert field(text) == source


def test_json_that_is_nested_deeper_or_has_larger_numbers_than_others_write_is_shown():
    value = {"deep": json.loads("[" * 300 + "]" * 300), "large": 10**40, "unseen": "\u202e"}

    assert json.loads(pretty(value)) == value
    assert "\\u202e" in json_text(value)


def test_a_text_is_cut_where_it_is_too_long_and_says_how_much_is_left():
    assert (clipped("short").text, clipped("short").left) == ("short", 0)
    cut = clipped("x" * 10_000)
    assert len(cut.text) + cut.left == 10_000
    assert len(cut.text) == 2_000
    lines = clipped("line\n" * 10_000)
    assert (len(lines.text), lines.left) == (4_000, 46_000)


def test_a_text_in_a_table_is_one_line():
    assert brief("one\n two\tthree") == "one two three"
    assert len(brief("x" * 1_000_000)) == 160


@pytest.mark.parametrize(
    ("milliseconds", "said"),
    [(7, "7 ms"), (1_250, "1.25 s"), (59_940, "59.9 s"), (123_000, "2 m 03 s"), (3_720_000, "1 h 02 m")],
)
def test_spans_are_said_as_people_do(milliseconds, said):
    assert duration(milliseconds) == said


@pytest.mark.parametrize(
    ("dollars", "said"), [(0, "$0"), (0.00001, "<$0.0001"), (0.0028, "$0.0028"), (1234.5, "$1,234.50")]
)
def test_small_amounts_keep_the_digits_that_say_something(dollars, said):
    assert money(dollars) == said
