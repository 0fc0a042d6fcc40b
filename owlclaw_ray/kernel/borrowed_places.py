"""Places that a process has of the lender of its node, and gives to those in it that wait.

What one use gives back is at once there for the next use of the same tenant, without a message, unless another borrower waits: then
it goes back to the lender, after `_QUANTUM_SECONDS` if uses are shorter than that. So messages are few where nobody is kept waiting,
and bounded where somebody is.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Hashable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import count
from typing import Protocol, TypeAlias

from msgspec import Struct

from owlclaw_ray.errors import RuntimeUnavailableError
from owlclaw_ray.ids import DEFAULT_TENANT, TenantId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.deadline import deadline
from owlclaw_ray.kernel.fair_order import FairOrder, Owner
from owlclaw_ray.kernel.place_lender import PlaceCount, PlaceNews, PlaceRequest, PoolName

_QUANTUM_SECONDS = 0.1
"""For so long a place may be used again and again although others wait."""
_LATER_SECONDS = 0.1
"""How late the lender may learn how much is waited for, as long as it knows that somebody waits."""
_ANSWER_SECONDS = 3.0
_PAUSE = 0.5

logger = logging.getLogger(__name__)


class Places(Protocol):
    """Of which some are held at once."""

    def place(self, owner: Owner) -> AbstractAsyncContextManager[None]:
        """Hold a place for the block, after waiting for it. Cancelling the wait gives up the turn."""
        ...


class Lender(Protocol):
    """The lender of the node, as a borrower reaches it."""

    async def request(self, request: PlaceRequest) -> PlaceNews:
        """See PlaceLender.request. Raises RuntimeUnavailableError if it is not there: it may or may not have noted the request."""
        ...


class PoolSize(Struct, frozen=True):
    """How many places of a pool there are, and how many one child of a tenant may hold; None: all."""

    places: int
    each: int | None = None


class _LentPlace(Struct, eq=False):
    """One that was lent."""

    owner: Owner
    """As the lender knows it: others of the tenant may have it meanwhile."""
    since: float


_Turn: TypeAlias = "asyncio.Future[_LentPlace]"


class _Lane:
    """What one tenant has and wants of a pool, in this process."""

    def __init__(self, pool: _Pool, tenant: TenantId) -> None:
        self.pool, self.tenant = pool, tenant
        size = pool.size
        self._order: FairOrder[_Turn] = FairOrder(size.places, each=size.each)
        self._most = size.places if size.each is None else size.each
        self.idle: list[_LentPlace] = []
        self.using: Counter[Owner] = Counter()
        self.waiting: Counter[Owner] = Counter()
        self.asked: Counter[Owner] = Counter()
        """How many the lender knows to be waited for."""
        self.changed: set[Owner] = set()
        """Owners of whom the lender may have to be told."""

    @property
    def unused(self) -> bool:
        """Whether there is nothing to remember."""
        return not (self.idle or self.using or self.waiting or self.asked)

    def may_use(self, owner: Owner) -> bool:
        """Return whether the owner may use one more place if there is an idle one."""
        return self._order.may_hold(_below(owner))

    def use(self, owner: Owner) -> None:
        """Note that the owner uses a place."""
        self._order.hold(_below(owner))
        self.using[owner] += 1

    def wait(self, owner: Owner, turn: _Turn) -> None:
        """Have the owner wait behind those of its own."""
        self._order.add(_below(owner), turn)
        self._wait(owner, 1)

    def wait_no_more(self, owner: Owner, turn: _Turn) -> None:
        """Give up the turn, if it still waits."""
        if self._order.remove(_below(owner), turn):
            self._wait(owner, -1)

    def end_use(self, owner: Owner) -> None:
        """Note that the owner uses a place no more."""
        self._order.give_back(_below(owner))
        _count(self.using, owner, -1)
        if self.waiting[owner]:
            self.changed.add(owner)

    def give(self, place: _LentPlace) -> bool:
        """Give the place to whoever is next; return whether anybody was."""
        while (first := self._order.first()) is not None:
            below, turn = first
            owner = (self.tenant, *below[1:])
            if turn.cancelled():
                self.wait_no_more(owner, turn)
                continue
            self._order.grant(below, turn)
            self.using[owner] += 1
            self._wait(owner, -1)
            turn.set_result(place)
            return True
        return False

    def wanted(self, owner: Owner) -> int:
        """Return how many places the owner waits for that it could use."""
        return max(0, min(self.waiting[owner], self._most - self.using[owner]))

    def granted(self, owner: Owner) -> None:
        """Note that the lender does not have the owner wait for one of them any more."""
        _count(self.asked, owner, -1)
        self.changed.add(owner)

    def ask(self, *, anew: bool) -> Iterator[PlaceCount]:
        """Return what the lender has to be told, and take it as told."""
        if anew:
            self.asked.clear()
            self.changed.update(self.waiting)
        changed, self.changed = self.changed, set()
        for owner in changed:
            more = self.wanted(owner) - self.asked[owner]
            if more:
                _count(self.asked, owner, more)
                yield PlaceCount(self.pool.name, owner, more)

    @property
    def must_ask(self) -> bool:
        """Whether somebody waits and the lender knows of nobody."""
        return not self.asked and any(self.wanted(owner) for owner in self.changed)

    def _wait(self, owner: Owner, more: int) -> None:
        _count(self.waiting, owner, more)
        self.changed.add(owner)
        if self.waiting:
            self.pool.waiting[self.tenant] = None
        else:
            self.pool.waiting.pop(self.tenant, None)


class _Pool:
    """The places of one kind."""

    def __init__(self, name: PoolName, size: PoolSize, borrower: BorrowedPlaces) -> None:
        self.name, self.size, self._borrower = name, size, borrower
        self.lanes: dict[TenantId, _Lane] = {}
        self.waiting: dict[TenantId, None] = {}
        """The tenants that wait here."""
        self.contended = False
        """Whether other borrowers wait."""
        self.held: Counter[Owner] = Counter()
        """As the lender knows it."""

    def lane(self, tenant: TenantId) -> _Lane:
        """Return the lane of the tenant."""
        lane = self.lanes.get(tenant)
        if lane is None:
            lane = self.lanes[tenant] = _Lane(self, tenant)
        return lane

    def others_wait(self, lane: _Lane) -> bool:
        """Return whether somebody waits, here or elsewhere, to whom what the lane has may be due."""
        return self.contended or len(self.waiting) > (lane.tenant in self.waiting)

    @asynccontextmanager
    async def place(self, owner: Owner) -> AsyncIterator[None]:
        """See Places.place."""
        lane = self.lane(owner[0])
        if lane.idle and lane.may_use(owner):
            place = lane.idle.pop()
            lane.use(owner)
        else:
            place = await self._wait(lane, owner)
        try:
            yield
        finally:
            self._give_back(lane, owner, place)

    async def _wait(self, lane: _Lane, owner: Owner) -> _LentPlace:
        turn: _Turn = asyncio.get_running_loop().create_future()
        lane.wait(owner, turn)
        self._borrower.waits(lane)
        try:
            return await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # the place was granted at the same moment
                self._give_back(lane, owner, turn.result())
            lane.wait_no_more(owner, turn)
            self._borrower.changed(lane)
            raise

    def _give_back(self, lane: _Lane, owner: Owner, place: _LentPlace) -> None:
        lane.end_use(owner)
        self._borrower.offer(lane, place)


class BorrowedPlaces:
    """The places of all pools that this process has of its lender.

    While the lender does not answer, the process uses as many as there are, as if it were the only one.
    """

    def __init__(self, lender: Lender, sizes: Mapping[PoolName, PoolSize], clock: Clock) -> None:
        self._lender, self._clock = lender, clock
        self._pools = {name: _Pool(name, size, self) for name, size in sizes.items()}
        self._numbers = count()
        self._returned: Counter[tuple[PoolName, Owner]] = Counter()
        self._last_news = self._last_told = 0
        self._alone = self._anew = False
        """Whether the lender is silent, and whether it may believe something else than what is."""
        self._due = False
        self._sender: asyncio.Task[None] | None = None
        self._timer: asyncio.Task[None] | None = None

    def pool(self, name: PoolName) -> Places:
        """Return the places of one kind."""
        return self._pools[name]

    def told(self, news: PlaceNews) -> None:
        """Take news that were not asked for. The same ones may come twice."""
        if news.number > self._last_told:
            self._last_told = news.number
            self._take(news)

    def waits(self, lane: _Lane) -> None:
        """Have the lender learn of somebody who waits."""
        if self._alone:
            self._lend_own()
        self._return_idle(lane.pool)
        self.changed(lane)

    def changed(self, lane: _Lane) -> None:
        """Have the lender learn what has changed: at once if it knows of nobody in the lane, else soon."""
        if lane.must_ask:
            self._send_now()
        elif lane.changed:
            self._send_later()

    def offer(self, lane: _Lane, place: _LentPlace) -> None:
        """Give the place to somebody in the lane, keep it, or return it."""
        pool = lane.pool
        others_wait = pool.others_wait(lane)
        again = not others_wait or self._clock.monotonic() - place.since < _QUANTUM_SECONDS
        if again and lane.give(place):
            self.changed(lane)
        elif others_wait:
            self._return(pool, place)
            self._send_now()
        else:
            lane.idle.append(place)
            self.changed(lane)
        if self._alone:
            self._lend_own()

    def _return(self, pool: _Pool, place: _LentPlace) -> None:
        self._returned[pool.name, place.owner] += 1
        _count(pool.held, place.owner, -1)

    def _take(self, news: PlaceNews) -> None:
        if news.number > self._last_news:
            self._last_news = news.number
            for name, pool in self._pools.items():
                pool.contended = name in news.contended
        now = self._clock.monotonic()
        for each in news.granted:
            pool = self._pools[each.pool]
            pool.held[each.owner] += each.number
            lane = pool.lane(each.owner[0])
            for _ in range(each.number):
                lane.granted(each.owner)
                self.offer(lane, _LentPlace(each.owner, now))
        for pool in self._pools.values():
            self._return_idle(pool)
            for lane in tuple(pool.lanes.values()):
                self.changed(lane)
                if lane.unused and not lane.changed:
                    del pool.lanes[lane.tenant]

    def _return_idle(self, pool: _Pool) -> None:
        """Return what is idle in each lane for which others may wait."""
        for lane in pool.lanes.values():
            if lane.idle and pool.others_wait(lane):
                for each in lane.idle:
                    self._return(pool, each)
                lane.idle.clear()
                self._send_now()

    def _lend_own(self) -> None:
        """Lend what the lender would lend if nobody else had any."""
        now = self._clock.monotonic()
        for pool in self._pools.values():
            used = sum(number for lane in pool.lanes.values() for number in lane.using.values())
            for lane in pool.lanes.values():
                while lane.waiting and used < pool.size.places:
                    owner = next(iter(lane.waiting))
                    if not lane.give(_LentPlace(owner, now)):
                        break
                    pool.held[owner] += 1
                    used += 1

    def _send_now(self) -> None:
        self._due = True
        if self._sender is None:
            self._sender = asyncio.create_task(self._send())

    def _send_later(self) -> None:
        if self._timer is None and not self._due:
            self._timer = asyncio.create_task(self._send_after(_LATER_SECONDS))

    async def _send_after(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._timer = None
        self._send_now()

    async def _send(self) -> None:
        try:
            while self._due:
                self._due = False
                request = self._request()
                if request.anew or request.returned or request.wanted:
                    try:
                        async with deadline(self._clock, _ANSWER_SECONDS):
                            news = await self._lender.request(request)
                    except (RuntimeUnavailableError, TimeoutError) as error:
                        await self._go_on_alone(error)
                    else:
                        self._alone = False
                        self._take(news)
        finally:
            self._sender = None

    async def _go_on_alone(self, error: Exception) -> None:
        if not self._alone:
            logger.warning("tool slots are taken without asking the other hosts of the node: %s", error or "no answer")
        self._alone = self._anew = self._due = True
        for pool in self._pools.values():
            pool.contended = False
        self._lend_own()
        await self._clock.sleep(_PAUSE)

    def _request(self) -> PlaceRequest:
        anew, self._anew = self._anew, False
        returned, self._returned = self._returned, Counter()
        wanted = [
            claim for pool in self._pools.values() for lane in pool.lanes.values() for claim in lane.ask(anew=anew)
        ]
        if not anew:
            claims = tuple(PlaceCount(name, owner, number) for (name, owner), number in returned.items())
            return PlaceRequest(next(self._numbers), claims, tuple(wanted))
        held = [
            PlaceCount(name, owner, number) for name, pool in self._pools.items() for owner, number in pool.held.items()
        ]
        return PlaceRequest(next(self._numbers), (), tuple(wanted), anew=True, held=tuple(held))


def _below(owner: Owner) -> Owner:
    """Return the owner as one of the default tenant, which is alone: what a whole tenant may have the lender sees to."""
    below: tuple[Hashable, ...] = owner[1:]
    return (DEFAULT_TENANT, *below)


def _count(numbers: Counter[Owner], owner: Owner, more: int) -> None:
    numbers[owner] += more
    if numbers[owner] <= 0:
        del numbers[owner]
