"""The far end of a duplex link: calls come in batches, answers leave in batches as soon as any is ready.

The near end is `models.reply_link`. Between the two there may be a process boundary, and either process may die. A box has an
id of its own, so that the near end learns that the one it had posted to is gone. Each call and each answer is packed for itself,
so that one that cannot be is its own caller's concern, and a message is closed by its bytes as well as by its number.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, NewType, Protocol, TypeAlias, TypeVar, cast

from msgspec import Struct

from owlclaw_ray.domain.model import ModelReply, NextAttempt
from owlclaw_ray.errors import EncodingError, ModelRefusedError, OwlClawError
from owlclaw_ray.ids import IdSource
from owlclaw_ray.kernel.batcher import MESSAGE
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.packing import pack, unpack
from owlclaw_ray.models.api import Listener, News

LONG_POLL = 10.0
"""Seconds that a near end waits for answers at most before it asks again."""
_TIMEOUT_SECONDS = 3 * LONG_POLL

_EARLY = 1_000
"""Withdrawals that are remembered although no such call is under way: most are of calls that were just answered."""

CallId = NewType("CallId", int)
"""Unique on its link, never used again."""
BoxId = NewType("BoxId", str)

Call = TypeVar("Call")
Perform: TypeAlias = Callable[[Call, Listener], Awaitable[ModelReply]]
"""What a box does with a call; the listener gets the news of it while it is under way."""

logger = logging.getLogger(__name__)


class CallReply(Struct, frozen=True):
    """What became of a call: a ModelReply or an OwlClawError, packed."""

    call_id: CallId
    outcome: bytes


class Received(Struct, frozen=True):
    """The answers that were ready, and which box had them."""

    box: BoxId
    answers: tuple[CallReply, ...] = ()
    waiting: tuple[tuple[CallId, bool], ...] = ()
    """Calls that began to wait for a slot, or have ceased to, since the last time."""
    failed: tuple[tuple[CallId, NextAttempt], ...] = ()
    """Attempts of calls that failed since the last time, and are followed by others."""


class RemoteReplyBox(Protocol):
    """A box, as the near end reaches it. Both methods raise RuntimeUnavailableError when its process is gone."""

    async def post(self, calls: Sequence[tuple[CallId, bytes]], withdrawn: Sequence[CallId]) -> Received:
        """Stop the withdrawn calls, begin the others, which are packed, and return which box has them."""
        ...

    async def receive(
        self, seconds: float, calls: Sequence[tuple[CallId, bytes]] = (), withdrawn: Sequence[CallId] = ()
    ) -> Received:
        """Do as `post` does; then return what has happened since the last message, as many answers as go into one.

        At once if there is any, else with the first answer or wait, or nothing after `seconds`.
        """
        ...


class ReplyBox(Generic[Call]):
    """The calls of one link that are under way, and the answers that were not fetched yet."""

    def __init__(self, box_id: BoxId, perform: Perform[Call], clock: Clock) -> None:
        self._id, self._perform, self._clock = box_id, perform, clock
        self._calls: dict[CallId, asyncio.Task[None]] = {}
        self._answers: list[CallReply] = []
        self._waiting: dict[CallId, bool] = {}
        self._failed: list[tuple[CallId, NextAttempt]] = []
        self._withdrawn_early: deque[CallId] = deque(maxlen=_EARLY)
        self._listener: asyncio.Future[None] | None = None
        self._heard = clock.monotonic()

    async def post(self, calls: Sequence[tuple[CallId, bytes]], withdrawn: Sequence[CallId]) -> Received:
        """See RemoteReplyBox.post. A withdrawn call gets no answer, nor does one whose withdrawal came before it."""
        self._heard = self._clock.monotonic()
        for call_id in withdrawn:
            task = self._calls.pop(call_id, None)
            self._waiting.pop(call_id, None)
            if task is not None:
                task.cancel()
            else:
                self._withdrawn_early.append(call_id)
        for call_id, call in calls:
            if call_id not in self._withdrawn_early:
                self._calls[call_id] = asyncio.create_task(self._answer(call_id, call))
        return Received(self._id)

    async def receive(
        self, seconds: float, calls: Sequence[tuple[CallId, bytes]] = (), withdrawn: Sequence[CallId] = ()
    ) -> Received:
        """See RemoteReplyBox.receive. An older `receive` that still waits was given up by its caller, and returns nothing."""
        await self.post(calls, withdrawn)
        self._call_listener()
        self._listener = listener = asyncio.get_running_loop().create_future()
        if not self._answers and not self._waiting and not self._failed:
            try:
                async with asyncio.timeout(seconds):
                    await listener
            except TimeoutError:
                pass
        if self._listener is not listener:
            return Received(self._id)
        self._listener, self._heard = None, self._clock.monotonic()
        first = MESSAGE.first(len(each.outcome) for each in self._answers)
        answers, self._answers = tuple(self._answers[:first]), self._answers[first:]
        waiting, self._waiting = tuple(self._waiting.items()), {}
        failed, self._failed = tuple(self._failed), []
        return Received(self._id, answers, waiting, failed)

    @property
    def abandoned(self) -> bool:
        """Whether no near end was heard of for so long that none waits for anything here."""
        return self._listener is None and self._clock.monotonic() - self._heard > _TIMEOUT_SECONDS

    def close(self) -> None:
        """Stop all calls."""
        for task in self._calls.values():
            task.cancel()
        self._calls.clear()

    def _call_listener(self) -> None:
        if self._listener is not None and not self._listener.done():
            self._listener.set_result(None)

    def _note(self, call_id: CallId, news: News) -> None:
        if call_id not in self._calls:
            return
        if isinstance(news, NextAttempt):
            self._failed.append((call_id, news))
            self._call_listener()
        elif self._waiting.pop(call_id, news) is news:  # else the near end has not heard of the wait that is over
            self._waiting[call_id] = news
            self._call_listener()

    async def _answer(self, call_id: CallId, packed: bytes) -> None:
        try:
            call = cast("Call", unpack(packed))
            outcome: ModelReply | OwlClawError = await self._perform(call, lambda news: self._note(call_id, news))
        except EncodingError as error:
            outcome = ModelRefusedError(f"the call did not arrive: {error}")
        except OwlClawError as error:
            outcome = error
        except BaseException as error:
            if call_id not in self._calls:
                raise
            logger.exception("a model client raised an unexpected error")
            outcome = ModelRefusedError(f"internal error: {type(error).__name__}: {error}")
        self._waiting.pop(call_id, None)
        if self._calls.pop(call_id, None) is not None:
            try:
                packed = pack(outcome)
            except EncodingError as error:
                packed = pack(ModelRefusedError(f"the answer cannot be sent: {error}"))
            self._answers.append(CallReply(call_id, packed))
            self._call_listener()


class ReplyBoxes(Generic[Call]):
    """The boxes of many links. A link that is not known, or was forgotten, begins with an empty box under a new id."""

    def __init__(self, perform: Perform[Call], clock: Clock, ids: IdSource) -> None:
        self._perform, self._clock, self._ids = perform, clock, ids
        self._boxes: dict[str, ReplyBox[Call]] = {}

    def __len__(self) -> int:
        return len(self._boxes)

    def of(self, link: str) -> ReplyBox[Call]:
        """Return the link's box."""
        if link not in self._boxes:
            self._boxes[link] = ReplyBox(BoxId(self._ids.make("box")), self._perform, self._clock)
        return self._boxes[link]

    async def remove_abandoned(self) -> None:
        """Drop boxes whose near end is gone, and stop the calls in them, for as long as this is awaited."""
        while True:
            await self._clock.sleep(_TIMEOUT_SECONDS)
            for link in [link for link, box in self._boxes.items() if box.abandoned]:
                logger.info("link %s was abandoned: its calls are cancelled", link)
                self._boxes.pop(link).close()
