"""Places that a process has of the lender of its node, and of one of its own while that one cannot be reached."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import TypeAlias

from msgspec import Struct, field

from owlclaw_ray.ids import TenantId
from owlclaw_ray.kernel.fair_order import Weights
from owlclaw_ray.kernel.place_lender import (
    Borrower,
    News,
    PlaceClaim,
    PlaceGrant,
    PlaceLender,
    PlaceMove,
    PlaceOwner,
    PlaceRecall,
    PlaceReturn,
    PoolName,
    PoolSize,
    Request,
)

Ask: TypeAlias = Callable[[Sequence[Request]], None]


class _Borrowed(Struct, eq=False):
    """A place that is used, kept, or waited for."""

    number: int
    owner: PlaceOwner
    granted: asyncio.Future[None]


class _Pool(Struct, eq=False):
    """What this process has of one pool."""

    name: PoolName
    size: PoolSize
    waiting: dict[int, _Borrowed] = field(default_factory=dict)
    used: dict[int, _Borrowed] = field(default_factory=dict)
    kept: dict[TenantId, list[_Borrowed]] = field(default_factory=dict)
    users: Counter[PlaceOwner] = field(default_factory=Counter)
    contended: bool = False
    """Whether somebody waits, as far as is known: then nothing is kept."""


class BorrowedPlaces:
    """The places of all pools that this process has.

    There is no lender at first. With `use_own` it is one of its own, which has as many as the node: who is alone is fair within itself.
    With `use` it is another one. What is used stays used then, and what waits goes on waiting there.
    """

    def __init__(self, sizes: Mapping[PoolName, PoolSize], weight: Weights) -> None:
        self._sizes, self._weight = sizes, weight
        self._pools = {name: _Pool(name, size) for name, size in sizes.items()}
        self._homes: dict[int, _Pool] = {}
        """The pools of granted and waiting loans."""
        self._numbers = count()
        self._requests: list[Request] = []
        self._moves: dict[int, PlaceMove] = {}
        """What the lender is told with the next request: it matters to nobody before."""
        self._due = False
        self._ask: Ask = _nobody
        self._alone = False

    @property
    def waits(self) -> bool:
        """Whether anybody here waits for a place."""
        return any(pool.waiting for pool in self._pools.values())

    def use(self, ask: Ask) -> None:
        """Borrow of the lender that `ask` reaches from now on. It is told what is used and waited for here."""
        self._ask, self._alone = ask, False
        self._requests, self._moves = [], {}
        for pool in self._pools.values():
            pool.contended = False
            for kept in pool.kept.values():
                for each in kept:
                    del self._homes[each.number]
            pool.kept.clear()
            self._requests += [self._claim(pool, each, held=True) for each in pool.used.values()]
            self._requests += [self._claim(pool, each) for each in pool.waiting.values()]
        if self._requests:
            self._send_soon()

    def use_none(self) -> None:
        """Borrow of nobody until the next `use`: what waits goes on waiting."""
        self.use(_nobody)

    def use_own(self) -> None:
        """Borrow of nobody else from now on."""
        if not self._alone:
            self.use(self._own_lender())
            self._alone = True

    def told(self, news: Sequence[News]) -> None:
        """Take what the lender in use says."""
        for each in news:
            match each:
                case PlaceGrant():
                    self._granted(each)
                case PlaceRecall():
                    self._contend(self._pools[each.pool])
                    self._send_soon()

    @asynccontextmanager
    async def place(self, name: PoolName, owner: PlaceOwner) -> AsyncIterator[None]:
        """Hold a place for the block, after waiting for it. Cancelling the wait gives up the turn."""
        pool = self._pools[name]
        loan = self._kept(pool, owner) or await self._borrow(pool, owner)
        try:
            yield
        finally:
            self._end_use(pool, loan)

    def _kept(self, pool: _Pool, owner: PlaceOwner) -> _Borrowed | None:
        """Return a place of the tenant that is kept here, in use by the owner from now on, if it may have one more."""
        kept = pool.kept.get(owner[0])
        if not kept or (pool.size.each is not None and pool.users[owner] >= pool.size.each):
            return None
        loan = kept.pop()
        if loan.owner != owner:
            loan.owner = owner
            self._moves[loan.number] = PlaceMove(loan.number, owner)
        self._begin_use(pool, loan)
        return loan

    async def _borrow(self, pool: _Pool, owner: PlaceOwner) -> _Borrowed:
        loan = _Borrowed(next(self._numbers), owner, asyncio.get_running_loop().create_future())
        pool.waiting[loan.number] = loan
        self._homes[loan.number] = pool
        self._request(self._claim(pool, loan))
        try:
            await loan.granted
        except asyncio.CancelledError:
            if pool.waiting.pop(loan.number, None) is None:  # the place was granted at the same moment
                self._end_use(pool, loan)
            else:
                self._return(loan)
            raise
        return loan

    def _begin_use(self, pool: _Pool, loan: _Borrowed) -> None:
        pool.used[loan.number] = loan
        pool.users[loan.owner] += 1

    def _end_use(self, pool: _Pool, loan: _Borrowed) -> None:
        del pool.used[loan.number]
        pool.users[loan.owner] -= 1
        if not pool.users[loan.owner]:
            del pool.users[loan.owner]
        if pool.contended:
            self._return(loan)
        else:
            pool.kept.setdefault(loan.owner[0], []).append(loan)

    def _granted(self, grant: PlaceGrant) -> None:
        pool = self._homes.get(grant.number)
        if pool is None:  # its return is under way
            return
        if grant.contended:
            self._contend(pool)
        else:
            pool.contended = False
        loan = pool.waiting.pop(grant.number)
        self._begin_use(pool, loan)
        if loan.granted.cancelled():  # whoever waits for it has not heard of it yet
            return
        loan.granted.set_result(None)

    def _contend(self, pool: _Pool) -> None:
        pool.contended = True
        for kept in pool.kept.values():
            for loan in kept:
                self._return(loan)
        pool.kept.clear()

    def _return(self, loan: _Borrowed) -> None:
        del self._homes[loan.number]
        self._request(PlaceReturn(loan.number))

    def _claim(self, pool: _Pool, loan: _Borrowed, *, held: bool = False) -> PlaceClaim:
        return PlaceClaim(loan.number, pool.name, loan.owner, self._weight(loan.owner[0]), held)

    def _request(self, request: Request) -> None:
        self._requests.append(request)
        self._send_soon()

    def _send_soon(self) -> None:
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        self._due = False
        requests, self._requests = [*self._moves.values(), *self._requests], []
        self._moves = {}
        self._ask(requests)

    def _own_lender(self) -> Ask:
        lender = PlaceLender(self._sizes)
        borrower = Borrower(self.told)
        return lambda requests: lender.take(borrower, requests)


def _nobody(_: Sequence[Request]) -> None:
    """There is no lender: the next one is told what is used and waited for."""
