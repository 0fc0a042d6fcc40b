import random
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from owlclaw_ray.domain.agent import AgentDefinition, ModelChoice
from owlclaw_ray.domain.governance import Governance
from owlclaw_ray.domain.hours import Hours
from owlclaw_ray.domain.permission import Approver, PermissionPolicy
from owlclaw_ray.domain.skill import Skill, Withheld
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.runs.skill_selection import select_skills, withheld_skills
from tests.properties import examples


def skill(name, tokens=100, description="", **fields):
    return Skill(name, description, f"/{name}/SKILL.md", tokens, **fields)


def names(skills, trigger, limit):
    return [each.name for each in select_skills(skills, trigger, limit)]


API = Trigger(TriggerKind.API)
UNRELATED = skill("zzzzzz", 0)
NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
"""A Friday."""


def test_all_skills_that_fit_are_read_in_the_order_of_their_names():
    assert names([skill("c"), skill("a"), skill("b")], API, 4_000) == ["a", "b", "c"]


def test_the_skill_that_the_focus_names_comes_first():
    skills = [
        skill("disk", focus=("review disks",)),
        skill("disk-space"),
        skill("a", description="disk space disk-space"),
    ]
    assert names(skills, Trigger(TriggerKind.API, focus="Look at Disk-Space again"), 100) == ["disk-space"]


def test_a_declared_focus_comes_before_the_kind_of_trigger_and_that_before_words():
    declared = skill("z", focus=("follow-up",))
    timed = skill("y", triggers=("schedule_once",))
    similar = skill("x", description="follow up the load of yesterday")
    trigger = Trigger(TriggerKind.SCHEDULE_ONCE, focus="Follow-up: load of yesterday")
    skills = [similar, timed, declared]
    assert names(skills, trigger, 100) == ["z"]
    assert names(skills, trigger, 200) == ["y", "z"]
    assert names(skills[:1] + skills[2:], trigger, 100) == ["z"]


def test_relevance_counts_words_of_focus_and_payload():
    skills = [skill("aa", description="how to trade shares"), skill("bb", description="memory pressure and swap")]
    assert names(skills, Trigger(TriggerKind.API, {"alarm": "swap is full, memory low"}), 100) == ["bb"]


def test_relevance_works_in_chinese():
    skills = [skill("aa", description="交易规则和风险"), skill("bb", description="内存压力的处理办法")]
    assert names(skills, Trigger(TriggerKind.API, focus="看看内存压力大不大"), 100) == ["bb"]


def test_a_skill_that_does_not_fit_leaves_its_room_to_the_next():
    skills = [skill("big", 500, triggers=("api",)), skill("small", 50)]
    assert names(skills, API, 499) == ["small"]
    assert names(skills, API, 0) == []


def test_an_empty_declared_focus_matches_nothing():
    skills = [skill("b", focus=("",)), skill("a", description="x")]
    assert names(skills, Trigger(TriggerKind.API, focus="x"), 4_000) == ["a"]


_SKILLS = st.lists(
    st.builds(
        Skill,
        name=st.text("abc-", min_size=1, max_size=6),
        description=st.text(max_size=30),
        path=st.uuids().map(str),
        tokens=st.integers(0, 3_000),
        focus=st.lists(st.text(max_size=5), max_size=2).map(tuple),
        triggers=st.lists(st.sampled_from([kind.value for kind in TriggerKind]), max_size=2).map(tuple),
    ),
    max_size=8,
)


@pytest.mark.property
@examples
@given(
    skills=_SKILLS,
    focus=st.text(max_size=20),
    payload=st.one_of(st.none(), st.dictionaries(st.text(), st.text(), max_size=3)),
    limit=st.integers(0, 6_000),
    seed=st.randoms(use_true_random=False),
)
def test_property_10_selected_skills_stay_within_the_token_limit(skills, focus, payload, limit, seed: random.Random):
    trigger = Trigger(TriggerKind.API, payload, focus)
    selected = select_skills(skills, trigger, limit)
    assert sum(each.tokens for each in selected) <= limit
    assert set(selected) <= set(skills)
    room = limit - sum(each.tokens for each in selected)
    related = [each for each in skills if select_skills((each, UNRELATED), trigger, 10**9) == (each,)]
    left_out = set(related or skills) - set(selected)
    assert all(each.tokens > room for each in left_out) or not set(related) & set(selected)
    shuffled = list(skills)
    seed.shuffle(shuffled)
    assert select_skills(shuffled, trigger, limit) == selected


def governed(governance, *skills, approver=Approver.NOBODY):
    model, policy = ModelChoice(("m",)), PermissionPolicy(approver=approver)
    return AgentDefinition(
        "shop", "1", "", "Be calm.", "- look", "", model, skills=skills, governance=governance, permissions=policy
    )


def test_a_skill_without_the_confirmation_that_it_needs_is_withheld_unless_its_capability_is_visible():
    risky, plain = skill("restock-all", risk_level="high"), skill("look")

    assert withheld_skills(governed(Governance(), risky, plain), ["shop.look"], NOW) == {
        "restock-all": Withheld(
            "risk", "its risk is high, and it is not confirmed (governance.confirmed in agent.yaml)"
        )
    }
    assert withheld_skills(governed(Governance(), risky, plain), ["shop.restock_all"], NOW) == {}
    assert withheld_skills(governed(Governance(confirmed=("restock-all",)), risky), [], NOW) == {}
    assert withheld_skills(governed(Governance(), risky, approver=Approver.PEOPLE), [], NOW) == {}


def test_skills_whose_prerequisites_are_not_met_are_withheld_whoever_can_be_asked():
    unmet, needy, plain = skill("a", unmet="there is no program rg"), skill("b", tools=("shop.buy", "look")), skill("c")
    definition = governed(Governance(), unmet, needy, plain, approver=Approver.PEOPLE)

    assert withheld_skills(definition, ["look"], NOW) == {
        "a": Withheld("prerequisites", "there is no program rg"),
        "b": Withheld("prerequisites", "the run does not have shop.buy"),
    }
    assert withheld_skills(definition, ["look", "shop.buy"], NOW).keys() == {"a"}


def test_skills_are_withheld_outside_their_hours():
    trading = skill("trade", hours=(Hours((), 570, 900, "UTC", (0, 1, 2, 3, 4)),))
    definition = governed(Governance(), trading, approver=Approver.PEOPLE)

    assert withheld_skills(definition, [], NOW) == {}
    assert withheld_skills(definition, [], NOW + timedelta(hours=3)) == {
        "trade": Withheld("hours", "it is outside 09:30-15:00 mon,tue,wed,thu,fri UTC")
    }
    assert withheld_skills(definition, [], NOW + timedelta(days=1)).keys() == {"trade"}


def test_withheld_skills_are_not_selected_and_leave_their_room_to_others():
    skills = (skill("a", triggers=("api",)), skill("b", triggers=("api",)), skill("c"))

    assert select_skills(skills, API, 100, {"a"}) == (skills[1],)
    assert select_skills(skills, API, 100, {"a", "b"}) == (skills[2],)


def test_what_has_nothing_to_do_with_the_trigger_is_read_only_if_no_skill_has():
    related, other = skill("disk", description="full disks"), skill("mail", description="the post")

    assert names([related, other], Trigger(TriggerKind.API, focus="the disk of a host"), 4_000) == ["disk"]
    assert names([related, other], Trigger(TriggerKind.API, focus="the weather"), 4_000) == ["disk", "mail"]


def test_skills_that_have_nothing_to_do_with_the_trigger_are_read_all_or_not_at_all():
    fifty = [skill(f"s{number:02}", 100, description="the post") for number in range(50)]
    weather = Trigger(TriggerKind.API, focus="the weather")

    assert names(fifty[:40], weather, 4_000) == [each.name for each in fifty[:40]]
    assert names(fifty, weather, 4_000) == []
    assert len(names(fifty, Trigger(TriggerKind.API, focus="s07"), 4_000)) == 1
    assert len(select_skills(fifty, weather, 4_000, {each.name for each in fifty[:10]})) == 40


def test_a_name_in_another_script_is_found_in_a_focus():
    assert names([skill("补货"), skill("盘点")], Trigger(TriggerKind.API, focus="请按补货规则处理"), 4_000) == ["补货"]
