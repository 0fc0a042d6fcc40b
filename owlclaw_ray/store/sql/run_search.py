"""Searching runs without reading many: no search reads more rows than its bounds below, however many runs there are and few match.

Everything but text is read from indexes that are in the order of acceptance for each agent, definition or tenant, each status and each kind
of trigger; where several of these are wanted, their newest are merged. Times become numbers of runs by looking at some dozens of runs:
they grow together, but for what clocks of nodes differ.

Text is looked for in two ways, one after the other, because either may be the one with few rows: in the newest runs that match
everything else, and then in the index of words (`focus_index`), from bucket to bucket backwards. What both leave open, because many runs
match either and few both, is left to the next page.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import product
from typing import Any

import orjson
from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    bindparam,
    func,
    literal_column,
    select,
    union_all,
)
from sqlalchemy.sql.selectable import Select

from owlclaw_ray.domain.focus import FocusQuery
from owlclaw_ray.domain.run import Run, RunStatus
from owlclaw_ray.domain.trigger import TriggerKind
from owlclaw_ray.ids import RunId, TenantId
from owlclaw_ray.store.run_search import RunPage, RunSearch
from owlclaw_ray.store.sql.codec import agent_key, from_micros, tenant_key, to_micros
from owlclaw_ray.store.sql.focus_index import bucket_of, first_of, term_of, word_hash
from owlclaw_ray.store.sql.queries import BRIEF_RUN_COLUMNS, reads, runs_of_rows
from owlclaw_ray.store.sql.schema import NAME, active_run, focus_terms, over_run, runs

CLOCKS_DIFFER = timedelta(minutes=2)
"""By how much a run may have been accepted before another one and have the later time: by what the clocks of two nodes differ, and by
what a trigger waits for its commit.
"""
_NEWEST = 500
"""How many runs that match all but the text are looked at."""
_WORDS, _CANDIDATES = 12_000, 3_000
"""How many rows of the index of words are read, and of runs that it names."""
_MOST_BUCKETS, _MOST_WORDS, _MOST_ROUNDS = 32, 8, 64
_FEW = 1_000
_READ_RATHER = 4
"""How many rows of a word are read rather than looking whether a run has it."""
_AT_ONCE = 500


@reads(RunSearch)
def search_runs(connection: Connection, where: RunSearch) -> RunPage:
    """Answer the query."""
    if where.agent is not None and where.definition is not None:
        if where.agent.definition != where.definition:
            return RunPage(())
        where = replace(where, definition=None)
    interval = _interval(connection, where)
    if interval.empty or not _statuses(where):
        return RunPage(())
    wanted = where.limit + 1
    if where.text is None:
        seqs = connection.execute(_newest(where, interval, wanted)).scalars().all()
        return _page(connection, where, seqs)
    query = FocusQuery.of(where.text)
    if not query.words and not query.pieces:
        return RunPage(())
    newest = connection.execute(_newest(where, interval, _NEWEST)).scalars().all()
    found = list(_matching(connection, where, query, newest, wanted))
    if len(found) >= wanted or len(newest) < _NEWEST:
        return _page(connection, where, found)
    below = newest[-1]
    if not query.terms or where.kind is TriggerKind.HEARTBEAT:
        return _page(connection, where, found, stopped_at=below)
    named = _Named(connection, where, query, replace(interval, below=below))
    for seqs in named.candidates():
        found += _matching(connection, where, query, seqs, wanted - len(found))
        if len(found) >= wanted:
            return _page(connection, where, found)
    return _page(connection, where, found, stopped_at=named.stopped_at)


class _Interval(Struct, frozen=True):
    """Numbers of runs: from `above` (not included) to `below` (not included)."""

    above: int = 0
    below: int | None = None

    @property
    def empty(self) -> bool:
        return self.below is not None and self.below <= self.above + 1

    def conditions(self, seq: ColumnElement[int]) -> list[ColumnElement[bool]]:
        found = [seq > self.above] if self.above else []
        return found if self.below is None else [*found, seq < self.below]


def _interval(connection: Connection, where: RunSearch) -> _Interval:
    """Return between which numbers the runs are that match; some of those between do not."""
    above, below = where.after_seq or 0, where.before_seq
    if where.since is None and where.until is None:
        return _Interval(above, below)
    timeline = _Timeline(connection, where.tenant)
    if where.since is not None:
        above = max(above, timeline.place_of(where.since)[0])
    if where.until is not None:
        end = timeline.place_of(where.until)[1]
        below = min((each for each in (below, end) if each is not None), default=None)
    return _Interval(above, below)


class _Timeline:
    """When a tenant's runs were accepted, by their numbers, of which it looks at a few."""

    def __init__(self, connection: Connection, tenant: TenantId) -> None:
        self._connection, self._parameters = connection, {"tenant": tenant}

    def place_of(self, at: datetime) -> tuple[int, int | None]:
        """Return a number up to which all runs were accepted before that time, and one from which on all were accepted after it; None
        if none was. Not far from it: a guess by what is known of two runs is seldom wrong by much, and else half of what is between
        them is ruled out.
        """
        moment, slack = to_micros(at), CLOCKS_DIFFER // timedelta(microseconds=1)
        before, after = moment - slack, moment + slack
        oldest, newest = (self._connection.execute(each, self._parameters).all() for each in (_OLDEST, _NEWEST_RUN))
        if not oldest:
            return 0, None
        (low, low_at), (high, high_at) = oldest[0], newest[0]
        first = 0 if low_at >= before else self._last_before(before, before - slack, (low, low_at), (high, high_at))
        if high_at < after:
            return first, None
        if low_at >= after:
            return first, low
        return first, 1 + self._last_before(after + slack, after, (low, low_at), (high, high_at))

    def _last_before(self, end: int, near: int, low: tuple[int, int], high: tuple[int, int]) -> int:
        """Return the number of a run that was accepted before `end`, not long before `near` unless the next one was at `end` or later.

        `low` was accepted before `end`, `high` is the newest run.
        """
        if high[1] < end:
            return high[0]
        guesses = 0
        while low[1] < near and high[0] - low[0] > 1:
            share = (near - low[1]) / max(1, high[1] - low[1]) if guesses % 2 == 0 else 0.5
            guess = min(high[0] - 1, max(low[0] + 1, low[0] + int(share * (high[0] - low[0]))))
            seq, accepted = self._connection.execute(_RUN_AT, {**self._parameters, "seq": guess}).one()
            if seq >= high[0]:  # there are only runs of others between
                high = (guess, high[1])
            elif accepted < end:
                low = (seq, accepted)
            else:
                high = (seq, accepted)
            guesses += 1
        return low[0]


_ACCEPTED = select(runs.c.seq, runs.c.created_at).where(runs.c.tenant == bindparam("tenant", type_=NAME)).limit(1)
_OLDEST, _NEWEST_RUN = _ACCEPTED.order_by(runs.c.seq), _ACCEPTED.order_by(runs.c.seq.desc())
_RUN_AT = _OLDEST.where(runs.c.seq >= bindparam("seq", type_=BigInteger))


def _newest(where: RunSearch, interval: _Interval, limit: int) -> Select[Any]:
    """Return the SELECT of the newest runs' numbers that match all but the text."""
    branches = [each.limit(limit) for each in _branches(where, interval)]
    if len(branches) == 1:
        return branches[0]
    parts = union_all(*(select(each.subquery().c.seq) for each in branches)).subquery("parts")
    return select(parts.c.seq).order_by(parts.c.seq.desc()).limit(limit)


def _branches(where: RunSearch, interval: _Interval) -> Iterator[Select[Any]]:
    """Yield the SELECTs of numbers, newest first, that together have all runs that match: each is read from one index, in its order."""
    statuses, of_tenant = _statuses(where), where.agent is None and where.definition is None
    of_scope = select(runs.c.seq).where(*_scope(where), *interval.conditions(runs.c.seq)).order_by(runs.c.seq.desc())
    if len(statuses) == len(RunStatus) and where.kind is None:
        yield of_scope  # runs_by_agent, runs_by_definition, runs_by_tenant
        return
    final, open_ones = [each for each in statuses if each.final], [each for each in statuses if not each.final]
    yield from _open_branches(where, interval, open_ones)
    if of_tenant and where.kind is None:
        for status in final:  # runs_by_status
            yield of_scope.where(runs.c.status == _text(status))
        return
    kinds = [*TriggerKind] if where.kind is None else [where.kind]
    for status, kind in product(final, kinds):  # runs_over_by_agent, runs_over_by_definition, runs_over
        yield of_scope.where(over_run, runs.c.status == _text(status), runs.c.kind == _text(kind))


def _open_branches(where: RunSearch, interval: _Interval, statuses: Sequence[RunStatus]) -> Iterator[Select[Any]]:
    """Yield those of runs of these statuses, none of which is over: few are. What the right index does not have is spelt such that no
    other index has it either.
    """
    seq, definition = runs.c.seq + literal_column("0"), func.coalesce(runs.c.definition, literal_column("''"))
    found = select(runs.c.seq).where(*_accepted(where))
    if where.kind is not None:
        found = found.where(runs.c.kind == _text(where.kind))
    if where.agent is not None:
        if statuses:  # runs_active
            names = [*map(_text, statuses)]
            found = found.where(_is_agent(where), active_run, runs.c.status.in_(names), *interval.conditions(seq))
            yield found.order_by(seq.desc())
        return
    if where.definition is not None:
        found = found.where(definition == tenant_key(where.tenant, where.definition))
    for status in statuses:  # runs_by_status
        of_status = found.where(runs.c.tenant == where.tenant, runs.c.status == _text(status))
        yield of_status.where(*interval.conditions(runs.c.seq)).order_by(runs.c.seq.desc())


def _text(value: RunStatus | TriggerKind) -> ColumnElement[str]:
    """Return the value as a part of the statement: a plan made for a parameter cannot use a partial index."""
    return literal_column(f"'{value.value}'", NAME)


def _statuses(where: RunSearch) -> Sequence[RunStatus]:
    wanted = [*RunStatus] if where.status is None else [where.status]
    return [each for each in wanted if not (where.open and each.final)]


def _scope(where: RunSearch) -> list[ColumnElement[bool]]:
    """Return the conditions on whose the runs are, by one column, and on when they were accepted."""
    if where.agent is not None:
        whose = _is_agent(where)
    elif where.definition is not None:
        whose = runs.c.definition == tenant_key(where.tenant, where.definition)
    else:
        whose = runs.c.tenant == where.tenant
    return [whose, *_accepted(where)]


def _is_agent(where: RunSearch) -> ColumnElement[bool]:
    assert where.agent is not None
    return runs.c.agent == agent_key(replace(where.agent, tenant=where.tenant))


def _accepted(where: RunSearch) -> list[ColumnElement[bool]]:
    found = [] if where.since is None else [runs.c.created_at >= to_micros(where.since)]
    return found if where.until is None else [*found, runs.c.created_at < to_micros(where.until)]


def _facets(where: RunSearch) -> list[ColumnElement[bool]]:
    """Return the conditions on all but the text, for runs that are found by their numbers."""
    found = [*_scope(where), runs.c.status.in_([each.value for each in _statuses(where)])]
    return found if where.kind is None else [*found, runs.c.kind == where.kind.value]


_OF_TERMS = select(focus_terms.c.seq).where(
    focus_terms.c.tenant == bindparam("tenant", type_=NAME),
    focus_terms.c.term.in_(bindparam("terms", type_=BigInteger, expanding=True)),
)
_OF_TERMS_AMONG = _OF_TERMS.where(focus_terms.c.seq.in_(bindparam("seqs", type_=BigInteger, expanding=True)))
_COUNTED_TERMS = _OF_TERMS.with_only_columns(focus_terms.c.term, func.count()).group_by(focus_terms.c.term)


class _Named:
    """The runs that the index of words names, and that match everything else."""

    def __init__(self, connection: Connection, where: RunSearch, query: FocusQuery, interval: _Interval) -> None:
        self._connection, self._where, self._interval = connection, where, interval
        longest = sorted(query.terms, key=lambda term: (-len(term), term))
        self._words = [word_hash(each) for each in longest[:_MOST_WORDS]]
        self._rates: dict[int, float] = dict.fromkeys(self._words, 0.0)
        """How many runs of a bucket have each word, as far as is known."""
        self._read = 0
        self.stopped_at: int | None = None
        """The number down to which all have been found; None if all have been."""

    def candidates(self) -> Iterator[Sequence[int]]:
        """Yield their numbers, descending, until all are found or too much was read."""
        below, candidates, size, rounds = self._interval.below or 0, 0, 1, 0
        while below > self._interval.above + 1:
            highest = bucket_of(below - 1)
            lowest = max(bucket_of(self._interval.above + 1), highest - size + 1)
            lowest, buckets = self._few(self._fewest(range(highest, lowest - 1, -1)), lowest)
            named = self._in_all(buckets, below)
            for at in range(0, len(named), _AT_ONCE):
                some = named[at : at + _AT_ONCE]
                yield self._facets(some)
                candidates += len(some)
                if candidates >= _CANDIDATES:
                    self.stopped_at = some[-1]
                    return
            below = first_of(lowest)
            rounds += 1
            if (self._read >= _WORDS or rounds >= _MOST_ROUNDS) and below > self._interval.above + 1:
                self.stopped_at = below
                return
            size = min(_MOST_BUCKETS, size * 2) if sum(buckets.values()) < _FEW else 1

    def _fewest(self, buckets: Iterable[int]) -> dict[int, int]:
        """Return the buckets, in their order, in which each word is, with how many runs have the one that the fewest have.

        A word that many have is counted where the rarer ones are, and nowhere else.
        """
        fewest = dict.fromkeys(buckets, first_of(1))
        for word in sorted(self._words, key=self._rates.__getitem__):
            places = {term_of(bucket, word): bucket for bucket in fewest}
            counted = self._connection.execute(_COUNTED_TERMS, {"tenant": self._where.tenant, "terms": [*places]})
            found = {places[term]: number for term, number in counted}
            self._read += sum(found.values())
            self._rates[word] = sum(found.values()) / len(places)
            fewest = {bucket: min(number, found[bucket]) for bucket, number in fewest.items() if bucket in found}
            if not fewest:
                break
        return fewest

    def _few(self, fewest: Mapping[int, int], lowest: int) -> tuple[int, dict[int, int]]:
        """Return those of the buckets, newest first, in which together few runs have the rarest word, or one of them; and down to which
        bucket that is all.
        """
        few: dict[int, int] = {}
        for bucket, number in fewest.items():
            if few and sum(few.values()) + number > _FEW:
                return bucket + 1, few
            few[bucket] = number
        return lowest, few

    def _in_all(self, buckets: Collection[int], below: int) -> Sequence[int]:
        """Return the runs of these buckets that have all words, the rarest first."""
        if not buckets:
            return ()
        first, *others = sorted(self._words, key=self._rates.__getitem__)
        found = [each for each in self._having(first, buckets) if each < below and each > self._interval.above]
        for word in others:
            places = {*map(bucket_of, found)}
            if len(places) * self._rates[word] <= _READ_RATHER * len(found):
                having = {*self._having(word, places)}
            else:
                having = {
                    each
                    for at in range(0, len(found), _AT_ONCE)
                    for each in self._having(word, places, found[at : at + _AT_ONCE])
                }
            found = [each for each in found if each in having]
        return sorted(found, reverse=True)

    def _having(self, word: int, buckets: Iterable[int], among: Sequence[int] | None = None) -> Sequence[int]:
        """Return the runs of these buckets that have the word, of these runs alone if some are given."""
        wanted = {"tenant": self._where.tenant, "terms": [term_of(bucket, word) for bucket in buckets]}
        if among is None:
            return self._connection.execute(_OF_TERMS, wanted).scalars().all()
        return self._connection.execute(_OF_TERMS_AMONG, {**wanted, "seqs": among}).scalars().all()

    def _facets(self, seqs: Sequence[int]) -> Sequence[int]:
        found = select(runs.c.seq).where(runs.c.seq.in_(seqs), *_facets(self._where)).order_by(runs.c.seq.desc())
        return self._connection.execute(found).scalars().all()


_TRIGGERS = select(runs.c.seq, runs.c.trigger)
_HEARTBEAT = TriggerKind.HEARTBEAT.value


def _matching(
    connection: Connection, where: RunSearch, query: FocusQuery, seqs: Sequence[int], wanted: int
) -> Iterator[int]:
    """Yield those of the runs, in their order, whose focus matches; as many as are wanted."""
    beats = where.kind is TriggerKind.HEARTBEAT
    for at in range(0, len(seqs), _AT_ONCE):
        some = seqs[at : at + _AT_ONCE]
        triggers = {row.seq: row.trigger for row in connection.execute(_TRIGGERS.where(runs.c.seq.in_(some)))}
        for seq in some:
            trigger = orjson.loads(triggers[seq])
            if (beats or trigger["kind"] != _HEARTBEAT) and query.matches(trigger["focus"]):
                yield seq
                wanted -= 1
                if wanted <= 0:
                    return


def _page(connection: Connection, where: RunSearch, found: Sequence[int], stopped_at: int | None = None) -> RunPage:
    """Return the runs of these numbers, of which one more than wanted says that there are more."""
    shown: Sequence[Run] = ()
    if found:
        columns = runs.c if where.payloads else BRIEF_RUN_COLUMNS
        these = select(*columns).where(runs.c.seq.in_(found[: where.limit])).order_by(runs.c.seq.desc())
        rows = connection.execute(these).all()
        shown = runs_of_rows(connection, where.tenant, rows, payloads=where.payloads)
    if len(found) > where.limit:
        return RunPage(shown, shown[-1].run_id)
    if stopped_at is None:
        return RunPage(shown)
    last = select(runs.c.run_id, runs.c.created_at).where(*_scope(where), runs.c.seq >= stopped_at)
    run_id, created_at = connection.execute(last.order_by(runs.c.seq).limit(1)).one()
    return RunPage(shown, RunId(run_id), from_micros(created_at))
