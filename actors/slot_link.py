"""Tool slots between the hosts of a node and its root, which lends them: it outlives no host, and no host outlives it.

They talk through a socket of their machine and not through Ray: a message costs a tenth, and both learn at once when the other is gone.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol, TypeAlias, cast

import ray
from msgspec import msgpack
from typing_extensions import override

from actors.plan import ToolSlots
from actors.remote import here
from actors.tool_task import SLOT_POOLS, Slots, slot_pools
from owlclaw_ray.domain.tool import ToolClass
from owlclaw_ray.kernel.borrowed_places import BorrowedPlaces
from owlclaw_ray.kernel.clock import Clock, Timer
from owlclaw_ray.kernel.deadline import deadline
from owlclaw_ray.kernel.fair_order import Weights
from owlclaw_ray.kernel.place_lender import Borrower, News, PlaceClaim, PlaceLender, PlaceOwner, PlaceRecall, Request

ANSWER_SECONDS = 5.0
"""Whoever has not answered for so long is taken for gone, and the connection is given up."""
_PING_SECONDS = 1.0
"""How often a host that waits for a slot asks whether the root is still there."""
_PAUSE = 0.1
_LONG_PAUSE = 1.0
"""The same before one more try where there was no connection."""
_LENGTH_BYTES = 4

_REQUESTS = msgpack.Decoder(tuple[Request, ...])
_NEWS = msgpack.Decoder(tuple[News, ...])
_encode = msgpack.Encoder().encode

logger = logging.getLogger(__name__)


class Line(Protocol):
    """A connection, which brings frames in their order, each once, or is lost."""

    def send(self, frame: bytes) -> None:
        """Send, at once; without effect when the connection is lost."""
        ...

    def close(self) -> None:
        """Give the connection up."""
        ...


class LineEnd(Protocol):
    """Who is at one end of a connection."""

    def opened(self, line: Line) -> None:
        """The connection is there."""
        ...

    def heard(self, frame: bytes) -> None:
        """The other end has sent this."""
        ...

    def lost(self) -> None:
        """The connection is no more."""
        ...


Connect: TypeAlias = Callable[[LineEnd], Awaitable[object]]
"""Connects that end with the root. Raises OSError."""


class _Silence:
    """Calls back when nothing was heard for a while since something was expected."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._timer: Timer | None = None

    def expect(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call back after so many seconds; without effect while something is expected already."""
        if self._timer is None:
            self._timer = self._clock.call_later(seconds, callback)

    def end(self) -> None:
        """Expect nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _ToRoot:
    """Implements `LineEnd` at a host. The root answers each claim and each empty frame at once, with an empty one if there is no news."""

    def __init__(self, places: BorrowedPlaces, clock: Clock) -> None:
        self._places, self._silence = places, _Silence(clock)
        self._line: Line | None = None
        self.in_use = False
        self.ended = asyncio.Event()

    def opened(self, line: Line) -> None:
        """See LineEnd.opened. A stopped process is connected with, too: the root lends from its first answer on."""
        self._line = line
        self._ask(())

    def heard(self, frame: bytes) -> None:
        """See LineEnd.heard."""
        if self.ended.is_set():
            return
        self._silence.end()
        if not self.in_use:
            self.in_use = True
            self._places.use(self._ask)
        self._places.told(_NEWS.decode(frame))
        if self._places.waits:
            self._silence.expect(_PING_SECONDS, self._ping)

    def lost(self) -> None:
        """See LineEnd.lost."""
        if self.ended.is_set():
            return
        self.ended.set()
        self._silence.end()
        if self.in_use:
            self._places.use_none()
        else:
            self._places.use_own()

    def give_up(self) -> None:
        """Have the host lend to itself: there is no connection, or no answer."""
        if not self.ended.is_set():
            if self._line is not None:
                self._line.close()
            self.in_use = False
            self.lost()

    def _ask(self, requests: Sequence[Request]) -> None:
        if self._line is not None:
            self._line.send(_encode(requests))
        if _is_question(requests):
            self._silence.expect(ANSWER_SECONDS, self.give_up)

    def _ping(self) -> None:
        self._silence.end()
        self._ask(())


class SlotLink:
    """A host's end."""

    def __init__(self, connect: Connect, slots: ToolSlots, weight: Weights, clock: Clock) -> None:
        self._connect, self._clock = connect, clock
        self._places = BorrowedPlaces(slot_pools(slots), weight)
        self._connecting = asyncio.create_task(self._stay_connected())

    def place(self, kind: ToolClass, owner: PlaceOwner) -> AbstractAsyncContextManager[None]:
        """Hold a slot of that class for the block, after waiting for it. Cancelling the wait gives up the turn."""
        return self._places.place(SLOT_POOLS[kind], owner)

    async def stop(self) -> None:
        """Borrow of the root no more."""
        self._connecting.cancel()
        await asyncio.gather(self._connecting, return_exceptions=True)

    async def _stay_connected(self) -> None:
        while True:
            end = _ToRoot(self._places, self._clock)
            try:
                async with deadline(self._clock, ANSWER_SECONDS):
                    await self._connect(end)
                await end.ended.wait()
                logger.warning("the connection with the node's root, which lends tool slots, has ended")
            except OSError as error:  # TimeoutError is one
                logger.info("the root lends no tool slots yet: %s", error or "no answer")
            finally:
                end.give_up()
            await self._clock.sleep(_PAUSE if end.in_use else _LONG_PAUSE)


class _ToHost:
    """Implements `LineEnd` at the root. A host answers each recall at once, with an empty frame if it has nothing to return."""

    def __init__(self, lender: PlaceLender, clock: Clock) -> None:
        self._lender, self._borrower, self._silence = lender, Borrower(self._tell), _Silence(clock)
        self._line: Line | None = None
        self._told = False

    def opened(self, line: Line) -> None:
        """See LineEnd.opened."""
        self._line = line

    def heard(self, frame: bytes) -> None:
        """See LineEnd.heard."""
        if self._line is None:
            return
        self._silence.end()
        requests = _REQUESTS.decode(frame)
        self._told = False
        self._lender.take(self._borrower, requests)
        if not self._told and _is_question(requests):
            self._tell(())

    def lost(self) -> None:
        """See LineEnd.lost."""
        self._line = None
        self._silence.end()
        self._lender.forget(self._borrower)

    def _tell(self, news: Sequence[News]) -> None:
        self._told = True
        if self._line is not None:
            self._line.send(_encode(news))
        if any(isinstance(each, PlaceRecall) for each in news):
            self._silence.expect(ANSWER_SECONDS, self._give_up)

    def _give_up(self) -> None:
        """Lend to others what the host has: a stopped process holds nothing up, and says what it has when it goes on."""
        if self._line is not None:
            self._line.close()
            self.lost()


class SlotDesk:
    """The root's end."""

    def __init__(self, slots: ToolSlots, clock: Clock) -> None:
        self._pools, self._clock = slot_pools(slots), clock
        self._lender = PlaceLender(self._pools)

    def held(self, kind: ToolClass) -> int:
        """Return how many slots of that class are lent."""
        return self._lender.held(SLOT_POOLS[kind])

    def waiting(self, kind: ToolClass) -> int:
        """Return how many calls of that class wait for a slot."""
        return self._lender.waiting(SLOT_POOLS[kind])

    def waiting_calls(self) -> dict[str, int]:
        """Return how many calls wait for slots, by the slots' name."""
        return {str(SLOT_POOLS[kind]): self.waiting(kind) for kind in ToolClass}

    def host(self) -> LineEnd:
        """Return the end of a new connection with a host."""
        return _ToHost(self._lender, self._clock)

    def own(self, weight: Weights) -> Slots:
        """Return the slots that the root's own process has: lent as to a host, without a connection."""
        places = BorrowedPlaces(self._pools, weight)
        borrower = Borrower(places.told)
        places.use(lambda requests: self._lender.take(borrower, requests))
        return lambda kind, owner: places.place(SLOT_POOLS[kind], owner)

    async def listen(self, path: Path) -> None:
        """Have hosts connect there. Those that cannot use Ray's order."""
        try:
            server = await asyncio.get_running_loop().create_unix_server(lambda: _SocketLine(self.host()), str(path))
        except OSError:
            logger.exception("tool slots are not shared out between the hosts of this node")
            return
        await server.serve_forever()


def socket_path(namespace: str) -> Path:
    """Return where the root of this node listens. Ray's own sockets are there, with longer names: so it is not too long for one."""
    name = hashlib.sha256(f"{namespace}@{here()}".encode()).hexdigest()[:7]
    node: Any = ray._private.worker.global_worker.node  # noqa: SLF001 - no public name
    return Path(node.get_sockets_dir_path()) / f"slot-{name}"


def connect_at(path: Path) -> Connect:
    """Return what connects with the root that listens there."""

    async def connect(end: LineEnd) -> object:
        return await asyncio.get_running_loop().create_unix_connection(lambda: _SocketLine(end), str(path))

    return connect


class _SocketLine(asyncio.Protocol):
    """Implements `Line` over a socket: frames behind their lengths."""

    def __init__(self, end: LineEnd) -> None:
        self._end = end
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(
            "asyncio.Transport", transport
        )  # uvloop's, as Ray's actors have it, is no instance of it
        self._end.opened(self)

    @override
    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= _LENGTH_BYTES:
            end = _LENGTH_BYTES + int.from_bytes(self._buffer[:_LENGTH_BYTES])
            if len(self._buffer) < end:
                return
            frame = bytes(self._buffer[_LENGTH_BYTES:end])
            del self._buffer[:end]
            self._end.heard(frame)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._end.lost()

    def send(self, frame: bytes) -> None:
        """See Line.send. A closed transport of uvloop raises."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(len(frame).to_bytes(_LENGTH_BYTES) + frame)

    def close(self) -> None:
        """See Line.close."""
        if self._transport is not None:
            self._transport.abort()


def _is_question(requests: Sequence[Request]) -> bool:
    return not requests or any(isinstance(each, PlaceClaim) for each in requests)
