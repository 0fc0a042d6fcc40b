"""One count of places for many processes of a node: a lender has them, borrowers hold some and ask for more.

A message for each use would cost as much as the use itself. So a borrower keeps what it was lent until others wait for it: then it is
told, and gives back what is idle at once and everything else when it has had its use of it (`kernel.borrowed_places`). Nobody
waits for a place that lies idle for longer than such a message takes.

Messages may be lost, come twice or overtake one another. A borrower that is not sure begins anew: it says all that it holds
and waits for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import NewType, TypeAlias

from msgspec import Struct

from owlclaw_ray.kernel.fair_order import FairOrder, Owner, Weights

BorrowerId = NewType("BorrowerId", str)
PoolName = NewType("PoolName", str)
"""A kind of places; each kind is counted for itself."""


class PlaceCount(Struct, frozen=True):
    """A number of places of an owner."""

    pool: PoolName
    owner: Owner
    number: int


class PlaceRequest(Struct, frozen=True):
    """What has changed at a borrower since its last request."""

    number: int
    """Of this request: one with a smaller number than a request before was given up by its borrower."""
    returned: tuple[PlaceCount, ...] = ()
    wanted: tuple[PlaceCount, ...] = ()
    """How many more it waits for; less than 0: how many fewer."""
    anew: bool = False
    """Whether `held` and `wanted` are all that there is, whatever was said before."""
    held: tuple[PlaceCount, ...] = ()


class PlaceNews(Struct, frozen=True):
    """What a borrower is told: in answer to a request, or because somebody else made one."""

    number: int
    """Later news have greater numbers."""
    granted: tuple[PlaceCount, ...]
    contended: frozenset[PoolName]
    """Where other borrowers wait."""


_Key: TypeAlias = tuple[PoolName, Owner]


class _Borrower:
    """What a borrower holds and waits for."""

    __slots__ = ("granted", "held", "last_request", "waiting", "waits")

    def __init__(self) -> None:
        self.last_request = -1
        self.held: Counter[_Key] = Counter()
        self.waiting: dict[_Key, list[int]] = {}
        """The numbers of its claims, the latest last."""
        self.waits: Counter[PoolName] = Counter()
        self.granted: list[PlaceCount] = []
        """What it was not told yet."""


class PlaceLender:
    """Lends the places of some pools, each in the order of FairOrder."""

    def __init__(self, places: Mapping[PoolName, int], weight: Weights, tell: Callable[[BorrowerId], None]) -> None:
        """`tell` is called when there are `news` for a borrower that has not asked."""
        self._orders: dict[PoolName, FairOrder[int]] = {
            pool: FairOrder(number, weight=weight) for pool, number in places.items()
        }
        self._tell = tell
        self._borrowers: dict[BorrowerId, _Borrower] = {}
        self._claimants: dict[int, BorrowerId] = {}
        """Who waits, by number of the claim."""
        self._keepers: dict[PoolName, dict[BorrowerId, None]] = {pool: {} for pool in places}
        """Those that hold something and keep it when it is idle, because nobody else waited when they were told last."""
        self._claims, self._numbers = count(), count(1)

    def held(self, pool: PoolName) -> int:
        """Return how many places are lent."""
        return self._orders[pool].held

    def waiting(self, pool: PoolName) -> int:
        """Return how many are waited for."""
        return self._orders[pool].waiting

    def request(self, borrower: BorrowerId, request: PlaceRequest) -> PlaceNews:
        """Note what has changed at the borrower, and return the news for it. What it does not hold it cannot return."""
        at = self._borrowers.setdefault(borrower, _Borrower())
        if request.number > at.last_request:
            at.last_request = request.number
            if request.anew:
                self._drop(borrower, at)
                at.granted = []
                for each in request.held:
                    self._orders[each.pool].hold(each.owner, each.number)
                    at.held[each.pool, each.owner] += each.number
            for each in request.returned:
                self._take_back(at, each)
            self._lend(borrower)  # what is given back is due to those that wait, before what is asked for with it
            for each in request.wanted:
                if each.number > 0:
                    self._want(borrower, at, each)
                else:
                    self._want_no_more(at, each)
            self._lend(borrower)
        return self.news(borrower)

    def news(self, borrower: BorrowerId) -> PlaceNews:
        """Return what the borrower was not told yet; nothing is granted to one that was forgotten."""
        at = self._borrowers.get(borrower)
        if at is None:
            return PlaceNews(next(self._numbers), (), frozenset())
        contended = frozenset(pool for pool in self._orders if self._others_wait(pool, at))
        holds = {pool for pool, _ in at.held}
        for pool, keepers in self._keepers.items():
            if pool in holds and pool not in contended:
                keepers[borrower] = None
            else:
                keepers.pop(borrower, None)
        granted, at.granted = tuple(at.granted), []
        return PlaceNews(next(self._numbers), granted, contended)

    def knows(self, borrower: BorrowerId) -> bool:
        """Return whether the borrower has asked for anything, and was not forgotten."""
        return borrower in self._borrowers

    def forget(self, borrower: BorrowerId) -> None:
        """Have back what the borrower holds, for it is gone; harmless for one that never asked."""
        at = self._borrowers.pop(borrower, None)
        if at is not None:
            self._drop(borrower, at)
            self._lend(borrower)

    def _others_wait(self, pool: PoolName, at: _Borrower) -> bool:
        return self._orders[pool].waiting > at.waits[pool]

    def _want(self, borrower: BorrowerId, at: _Borrower, claim: PlaceCount) -> None:
        order, key = self._orders[claim.pool], (claim.pool, claim.owner)
        number = claim.number
        while number and order.free > 0 and order.may_hold(claim.owner):
            order.hold(claim.owner)
            self._grant(at, key)
            number -= 1
        claims = [next(self._claims) for _ in range(number)]
        for each in claims:
            order.add(claim.owner, each)
            self._claimants[each] = borrower
        if claims:
            at.waiting.setdefault(key, []).extend(claims)
            at.waits[claim.pool] += number

    def _want_no_more(self, at: _Borrower, claim: PlaceCount) -> None:
        waiting = at.waiting.get((claim.pool, claim.owner), [])
        for each in reversed(waiting[claim.number :]):
            self._orders[claim.pool].remove(claim.owner, each)
            self._waits_no_more(at, (claim.pool, claim.owner), each)

    def _take_back(self, at: _Borrower, claim: PlaceCount) -> None:
        key = claim.pool, claim.owner
        number = min(claim.number, at.held[key])
        if number:
            at.held[key] -= number
            self._orders[claim.pool].give_back(claim.owner, number)
        if not at.held[key]:
            del at.held[key]

    def _grant(self, at: _Borrower, key: _Key) -> None:
        at.held[key] += 1
        at.granted.append(PlaceCount(*key, 1))

    def _waits_no_more(self, at: _Borrower, key: _Key, claim: int) -> None:
        del self._claimants[claim]
        at.waits[key[0]] -= 1
        waiting = at.waiting[key]
        waiting.remove(claim)
        if not waiting:
            del at.waiting[key]

    def _drop(self, borrower: BorrowerId, at: _Borrower) -> None:
        for (pool, owner), number in at.held.items():
            self._orders[pool].give_back(owner, number)
        for (pool, owner), claims in at.waiting.items():
            for each in claims:
                self._orders[pool].remove(owner, each)
                del self._claimants[each]
        at.held, at.waiting, at.waits = Counter(), {}, Counter()
        for keepers in self._keepers.values():
            keepers.pop(borrower, None)

    def _lend(self, asks: BorrowerId) -> None:
        """Lend what is free to those that wait, and have those told that have news but for the one that asks."""
        told: dict[BorrowerId, None] = {}
        for pool, order in self._orders.items():
            while order.free > 0 and (first := order.first()) is not None:
                owner, claim = first
                borrower = self._claimants[claim]
                at = self._borrowers[borrower]
                order.grant(owner, claim)
                self._waits_no_more(at, (pool, owner), claim)
                self._grant(at, (pool, owner))
                told[borrower] = None
            if order.waiting:
                told |= dict.fromkeys(self._idle_keepers(pool))
        for borrower in told:
            if borrower != asks:
                self._tell(borrower)

    def _idle_keepers(self, pool: PoolName) -> Iterable[BorrowerId]:
        """Return those that may keep idle places although others wait now."""
        return [each for each in self._keepers[pool] if self._others_wait(pool, self._borrowers[each])]
