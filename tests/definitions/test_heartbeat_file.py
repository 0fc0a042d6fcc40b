import pytest

from owlclaw_ray.definitions.defaults import Defaults
from owlclaw_ray.definitions.loader import load_definition
from owlclaw_ray.domain.heartbeat import EventSourceKind, Heartbeat
from owlclaw_ray.errors import DefinitionError
from tests.definitions.writing import write_definition


def loaded(tmp_path, agent):
    return load_definition(write_definition(tmp_path / "watch", agent=agent), Defaults()).heartbeat


@pytest.mark.parametrize(("agent", "heartbeat"), [("", None), ("heartbeat: {}", Heartbeat())])
def test_heartbeats_are_for_those_who_write_a_section_be_it_empty(tmp_path, agent, heartbeat):
    assert loaded(tmp_path, agent) == heartbeat


def test_everything_that_the_section_says_is_read(tmp_path):
    written = """
heartbeat:
  every_seconds: 60
  sources: [database, events]
  focus: 看看订单
  max_per_day: 3
  pause_after_idle_days: null
  query: SELECT 1
  url_variable: SHOP_URL
"""

    assert loaded(tmp_path, written) == Heartbeat(
        60, (EventSourceKind.DATABASE, EventSourceKind.EVENTS), "看看订单", 3, None, "SELECT 1", "SHOP_URL"
    )


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("{every_seconds: 59}", "heartbeat.every_seconds"),
        ("{sources: []}", "heartbeat.sources"),
        ("{sources: [mail]}", "heartbeat.sources"),
        ("{max_per_day: 0}", "heartbeat.max_per_day"),
        ("{pause_after_idle_days: -1}", "heartbeat.pause_after_idle_days"),
        ("{focus: ' '}", "heartbeat.focus"),
        ("{every: 60}", "there is no such key"),
        ("{sources: [database]}", "write its query, and url_variable"),
        ("{query: SELECT 1}", "not the source database"),
        ("{sources: [database], query: SELECT 1, url_variable: 'a b'}", "heartbeat.url_variable"),
        ("5", "heartbeat: is 5"),
    ],
)
def test_a_section_that_cannot_be_is_refused_with_its_key(tmp_path, section, words):
    with pytest.raises(DefinitionError) as caught:
        loaded(tmp_path, f"heartbeat: {section}\n")

    assert words in str(caught.value)
