"""The near end of a duplex link: each caller waits for its own answer, messages carry those of all.

A message waits for answers at the far end, one at a time, and takes along the calls that are ready when it leaves: a call that is
alone costs one message. Calls that come while it waits leave in messages of their own, one after another. The far end is
`models.reply_box`; it copes with a withdrawal that overtakes its call.

Calls belong to runs under way, so none is refused: beyond `batching.WAITING` they wait for room before they are packed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from itertools import count, islice
from typing import Generic, TypeAlias, TypeVar, cast

from owlclaw_ray.domain.model import ModelReply
from owlclaw_ray.errors import EncodingError, ModelRefusedError, RuntimeUnavailableError
from owlclaw_ray.kernel.batcher import MESSAGE, WAITING, BatchCapacity, Bound
from owlclaw_ray.kernel.packing import pack, unpack
from owlclaw_ray.models.api import Listener, ignore_news
from owlclaw_ray.models.reply_box import LONG_POLL, BoxId, CallId, Received, RemoteReplyBox

Call = TypeVar("Call")
Message: TypeAlias = Callable[[Sequence[tuple[CallId, bytes]], Sequence[CallId]], Awaitable[Received]]
"""A method of the far end that takes calls and withdrawals."""

logger = logging.getLogger(__name__)


class LinkLostError(RuntimeUnavailableError):
    """The far end is gone, and the answer with it: the call happened, or not."""


class ReplyLink(Generic[Call]):
    """Asks one far end.

    When the far end is gone, or was replaced, every call that had no answer raises LinkLostError: the caller decides whether and
    where to ask again. Later calls try the far end again.
    """

    def __init__(self, far: RemoteReplyBox, waiting: Bound = WAITING) -> None:
        self._far, self._room = far, BatchCapacity(waiting)
        self._ids = count()
        self._callers: dict[CallId, asyncio.Future[ModelReply]] = {}
        self._unsent: dict[CallId, bytes] = {}
        self._listeners: dict[CallId, Listener] = {}
        """By call; those that wait for a slot, as far as is known, are in `_paused`."""
        self._paused: set[CallId] = set()
        self._withdrawn: list[CallId] = []
        self._undelivered: list[CallId] = []
        """Withdrawals that could not be sent even by themselves: they leave with the next message."""
        self._posted: set[CallId] = set()
        self._box: BoxId | None = None
        self._poster: asyncio.Task[None] | None = None
        self._receiver: asyncio.Task[None] | None = None

    async def ask(self, call: Call, listener: Listener = ignore_news) -> ModelReply:
        """Return the call's answer, or raise it if it is an error. Cancelling stops the call at the far end.

        ModelRefusedError for a call, or an answer, that cannot be sent. While too much waits to leave, the call waits as well; calls
        that have left hold no others back, however long their answers take.
        """
        await self._room.wait()
        try:
            packed = pack(call)
        except EncodingError as error:
            raise ModelRefusedError(f"the call cannot be sent: {error}") from error
        call_id = CallId(next(self._ids))
        answer: asyncio.Future[ModelReply] = asyncio.get_running_loop().create_future()
        self._callers[call_id], self._listeners[call_id] = answer, listener
        self._unsent[call_id] = packed
        self._room.enter(1, len(packed))
        self._post_soon()
        try:
            return await answer
        except asyncio.CancelledError:
            self._withdraw(call_id)
            if self._withdrawn:
                self._post_soon()
            raise
        finally:
            self._callers.pop(call_id, None)
            self._posted.discard(call_id)
            self._tell(call_id, False)
            del self._listeners[call_id]

    def _withdraw(self, call_id: CallId) -> None:
        """Do not send the call; if it has left already, the next message that leaves stops it."""
        if not self._withdraw_unsent(call_id):
            self._withdrawn.append(call_id)

    def _withdraw_unsent(self, call_id: CallId) -> bool:
        """Return whether the call had not left, and does not wait to leave any more."""
        packed = self._unsent.pop(call_id, None)
        if packed is not None:
            self._room.leave(1, len(packed))
        return packed is not None

    def _post_soon(self) -> None:
        if self._receiver is None:
            self._receiver = asyncio.create_task(self._receive())
        elif self._poster is None:
            self._poster = asyncio.create_task(self._post())

    async def _post(self) -> None:
        try:
            while self._unsent or self._withdrawn:
                await self._send(self._far.post)
        except RuntimeUnavailableError as error:
            self._fail_calls(self._unsent, error)
        finally:
            self._poster = None
        if self._posted and self._receiver is None:
            self._receiver = asyncio.create_task(self._receive())

    async def _receive(self) -> None:
        try:
            while self._posted or self._unsent or self._withdrawn:
                waits = LONG_POLL if self._posted or self._unsent else 0.0
                await self._send(partial(self._far.receive, waits))
        except RuntimeUnavailableError as error:
            self._fail_calls((*self._posted, *self._unsent), error)
        finally:
            self._receiver = None

    async def _send(self, message: Message) -> None:
        """Send what is ready to leave, and pass on what comes back."""
        known = self._box
        calls = tuple(islice(self._unsent.items(), MESSAGE.first(map(len, self._unsent.values()))))
        withdrawn, self._withdrawn, self._undelivered = self._undelivered + self._withdrawn, [], []
        for call_id, _ in calls:
            self._withdraw_unsent(call_id)
        try:
            received = await message(calls, withdrawn)
        except RuntimeUnavailableError as error:
            self._withdrawn = withdrawn + self._withdrawn
            self._fail_calls([call_id for call_id, _ in calls], error)
            raise
        except Exception as error:  # noqa: BLE001 - it goes to the callers who may have caused it
            if calls:
                self._withdrawn = withdrawn + self._withdrawn
            else:
                self._undelivered = withdrawn
            for call_id in [call_id for call_id, _ in calls] if calls or withdrawn else tuple(self._posted):
                self._resolve(call_id, error)
            return
        if self._box == known != received.box:
            self._fail_calls(self._posted, RuntimeUnavailableError("the far end was replaced"))
            self._box = received.box
        self._posted.update(call_id for call_id, _ in calls if call_id in self._callers)
        for call_id, waiting in received.waiting:
            self._tell(call_id, waiting)
        for call_id, following in received.failed:
            if call_id in self._callers:
                self._listeners[call_id](following)
        for each in received.answers:
            self._resolve(each.call_id, _unpacked(each.outcome))
        if received.box != self._box:  # another message has found a successor while this one was under way
            lost = [call_id for call_id, _ in calls if call_id in self._posted]
            self._fail_calls(lost, RuntimeUnavailableError("the far end was replaced"))

    def _tell(self, call_id: CallId, waiting: bool) -> None:  # noqa: FBT001 - as Waiting has it
        if call_id in self._listeners and (call_id in self._paused) is not waiting:
            self._paused ^= {call_id}
            self._listeners[call_id](waiting)

    def _fail_calls(self, call_ids: Iterable[CallId], error: RuntimeUnavailableError) -> None:
        """Fail these calls. Should their far end live after all, the next message that reaches it withdraws them."""
        lost = [call_id for call_id in call_ids if call_id in self._callers]
        if lost:
            logger.warning("%d model calls lost their far end: %s", len(lost), error)
        for call_id in lost:
            self._withdraw(call_id)
            self._resolve(call_id, LinkLostError(str(error)))

    def _resolve(self, call_id: CallId, outcome: ModelReply | Exception) -> None:
        self._posted.discard(call_id)
        caller = self._callers.pop(call_id, None)
        if caller is None or caller.done():
            return
        if isinstance(outcome, Exception):
            caller.set_exception(outcome)
        else:
            caller.set_result(outcome)


def _unpacked(outcome: bytes) -> ModelReply | Exception:
    try:
        return cast("ModelReply | Exception", unpack(outcome))
    except EncodingError as error:
        return ModelRefusedError(f"the answer did not arrive: {error}")
