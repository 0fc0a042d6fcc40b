"""Places of a node that several processes share: a lender lends them in the order of FairOrder.

Borrowers reach it over connections that lose nothing as long as they hold. A borrower is gone when its connection is, and what it had
is free again at once; if it only lost the connection it says in the next one what it holds and waits for. So there is nothing to
acknowledge, and nothing to repeat.

A borrower keeps a place that it has used while nobody waits, and uses it again without a message. Whoever may keep one is
told when somebody begins to wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NewType, TypeAlias

from msgspec import Struct

from owlclaw_ray.ids import TenantId
from owlclaw_ray.kernel.fair_order import FairOrder

PoolName = NewType("PoolName", str)
"""A kind of places; each kind is counted for itself."""

PlaceOwner: TypeAlias = tuple[TenantId, str]
"""A tenant, and one of its agents."""


class PoolSize(Struct, frozen=True):
    """How many places of a pool there are, and how many one child of a tenant may hold; None: all."""

    places: int
    each: int | None = None


class PlaceClaim(Struct, frozen=True, tag=True, array_like=True):
    """A place that a borrower wants, or holds."""

    number: int
    """Of the loan. The borrower counts them, and uses no number twice in a connection."""
    pool: PoolName
    owner: PlaceOwner
    weight: float
    """Of its tenant, as the borrower knows it now."""
    held: bool = False
    """Whether the borrower has it from another connection."""


class PlaceMove(Struct, frozen=True, tag=True, array_like=True):
    """A place that the borrower kept is used by another agent of its tenant now."""

    number: int
    owner: PlaceOwner


class PlaceReturn(Struct, frozen=True, tag=True, array_like=True):
    """A place that the borrower does not want any more, whether it has it or waits for it."""

    number: int


class PlaceGrant(Struct, frozen=True, tag=True, array_like=True):
    """A place that is lent."""

    number: int
    contended: bool
    """Whether somebody waits, or more is lent than there is: it is to be returned when it was used."""


class PlaceRecall(Struct, frozen=True, tag=True, array_like=True):
    """Somebody waits, or more is lent than there is: kept places of the pool are to be returned now, used ones when they are idle."""

    pool: PoolName


Request: TypeAlias = PlaceClaim | PlaceMove | PlaceReturn
News: TypeAlias = PlaceGrant | PlaceRecall


class _Loan:
    """A place that is lent, or waited for."""

    __slots__ = ("borrower", "granted", "number", "owner", "pool")

    def __init__(self, borrower: Borrower, claim: PlaceClaim) -> None:
        self.borrower, self.number, self.pool = borrower, claim.number, claim.pool
        self.owner = claim.owner
        self.granted = False


class Borrower:
    """One connection of a process that borrows."""

    def __init__(self, tell: Callable[[Sequence[News]], None]) -> None:
        self.tell = tell
        self.loans: dict[int, _Loan] = {}
        self.held: Counter[PoolName] = Counter()
        self.news: list[News] = []


class PlaceLender:
    """Lends the places of some pools."""

    def __init__(self, sizes: Mapping[PoolName, PoolSize]) -> None:
        self._weights: dict[TenantId, float] = {}
        self._orders: dict[PoolName, FairOrder[_Loan]] = {
            name: FairOrder(size.places, each=size.each, weight=lambda tenant: self._weights.get(tenant, 1.0))
            for name, size in sizes.items()
        }
        self._keepers: dict[PoolName, dict[Borrower, None]] = {name: {} for name in sizes}
        """Those that hold places and were not told that somebody waits."""
        self._with_news: dict[Borrower, None] = {}

    def held(self, pool: PoolName) -> int:
        """Return how many places are lent."""
        return self._orders[pool].held

    def waiting(self, pool: PoolName) -> int:
        """Return how many places are waited for."""
        return self._orders[pool].waiting

    def take(self, borrower: Borrower, requests: Sequence[Request]) -> None:
        """Do what the borrower asks for, in that order, and tell all borrowers what is new for them."""
        for request in requests:
            match request:
                case PlaceClaim():
                    self._claim(borrower, request)
                case PlaceMove():
                    self._move(borrower, request)
                case PlaceReturn():
                    self._take_back(borrower, request.number)
        self._tell()

    def forget(self, borrower: Borrower) -> None:
        """Have back all that the borrower holds, for it is gone."""
        for number in tuple(borrower.loans):
            self._take_back(borrower, number)
        self._with_news.pop(borrower, None)
        self._tell()

    def _claim(self, borrower: Borrower, claim: PlaceClaim) -> None:
        self._weights[claim.owner[0]] = claim.weight
        order, loan = self._orders[claim.pool], _Loan(borrower, claim)
        borrower.loans[claim.number] = loan
        if claim.held:
            order.hold(loan.owner)
            self._note_held(loan, keeps=True)
        elif order.free > 0 and order.may_hold(loan.owner):
            order.hold(loan.owner)
            self._grant(loan)
        else:
            order.add(loan.owner, loan)

    def _move(self, borrower: Borrower, move: PlaceMove) -> None:
        loan = borrower.loans[move.number]
        order = self._orders[loan.pool]
        order.give_back(loan.owner)
        loan.owner = move.owner
        order.hold(loan.owner)
        self._lend(loan.pool)

    def _take_back(self, borrower: Borrower, number: int) -> None:
        loan = borrower.loans.pop(number)
        order = self._orders[loan.pool]
        if not loan.granted:
            order.remove(loan.owner, loan)
            return
        order.give_back(loan.owner)
        borrower.held[loan.pool] -= 1
        if not borrower.held[loan.pool]:
            self._keepers[loan.pool].pop(borrower, None)
        self._lend(loan.pool)

    def _lend(self, pool: PoolName) -> None:
        order = self._orders[pool]
        while order.free > 0 and (first := order.first()) is not None:
            order.grant(*first)
            self._grant(first[1])

    def _grant(self, loan: _Loan) -> None:
        contended = self._contended(loan.pool)
        self._note_held(loan, keeps=not contended)
        loan.borrower.news.append(PlaceGrant(loan.number, contended))
        self._with_news[loan.borrower] = None

    def _note_held(self, loan: _Loan, *, keeps: bool) -> None:
        loan.granted = True
        loan.borrower.held[loan.pool] += 1
        if keeps:
            self._keepers[loan.pool][loan.borrower] = None

    def _contended(self, pool: PoolName) -> bool:
        order = self._orders[pool]
        return order.waiting > 0 or order.free < 0

    def _tell(self) -> None:
        for pool, keepers in self._keepers.items():
            if keepers and self._contended(pool):
                for borrower in keepers:
                    borrower.news.append(PlaceRecall(pool))
                    self._with_news[borrower] = None
                keepers.clear()
        told, self._with_news = self._with_news, {}
        for borrower in told:
            news, borrower.news = borrower.news, []
            borrower.tell(news)
