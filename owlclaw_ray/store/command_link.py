"""Commands of many callers in few messages to the store's process: both ends of the way.

Each command, and each outcome, is encoded for itself: its name and its fields as MessagePack, in less time than pickle takes for
all of a message at once. So a message is closed by its bytes as well as by its number of commands, and one command that cannot be
encoded, or whose outcome cannot be, is CommandFailed while the others of its message are committed.

What waits here to be sent leaves in turns of tenants, as far as it is new work, and is bounded (`batcher.WAITING`). Beyond the
bound, or beyond three quarters of it that are one tenant's, new work is refused, with StoreOverloadedError: a trigger, or a
webhook, whose sender can try again. All else waits for room, for it belongs to work that was accepted: a claim, a journal
entry, the end of a run, a decision, a cancellation, a due schedule. Each of those has a caller that waits for it before it goes
on, so there are never more of them than runs under way. An agent that starts another one's run is a caller of that kind too:
its DurableStore takes the refusal for what it is, and tries again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import cache
from typing import Any, cast, get_args

from msgspec import msgpack

from owlclaw_ray.domain.json import JsonText
from owlclaw_ray.errors import EncodingError, StoreOverloadedError
from owlclaw_ray.ids import TenantId
from owlclaw_ray.kernel.batcher import WAITING, BatchCapacity, Batcher, Bound
from owlclaw_ray.store.commands import Command, CommandFailed, Outcome
from owlclaw_ray.store.group_commit import GroupCommit, loads_of, tenant_of_new_work, unblocked

Send = Callable[[Sequence[bytes]], Awaitable[Sequence[bytes]]]
"""Has `answered` called with a message at the far end."""

_KINDS: dict[str, Any] = {kind.__name__: kind for kind in (*get_args(Command), *get_args(Outcome))}
_TEXT = 1
"""The code of a JsonText in MessagePack."""
_END_OF_NAME = b"\0"
_REFUSED = b""
"""Stands for the outcome of new work that was refused for want of room."""
_TOO_MUCH = "too much waits to be committed"


def _as_extension(value: object) -> msgpack.Ext:
    if isinstance(value, JsonText):
        return msgpack.Ext(_TEXT, value.text.encode())
    raise TypeError(f"{type(value).__name__} is no JSON")


def _from_extension(_code: int, data: memoryview) -> JsonText:
    return JsonText(str(data, "utf-8"))


_ENCODER = msgpack.Encoder(enc_hook=_as_extension)


def encode(fact: Command | Outcome) -> bytes:
    """Return a command or an outcome as bytes; raises EncodingError."""
    try:
        return type(fact).__name__.encode() + _END_OF_NAME + _ENCODER.encode(fact)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise EncodingError(f"{type(fact).__name__} cannot be encoded: {type(error).__name__}: {error}") from error


def decode(encoded: bytes) -> Any:
    """Return the command or the outcome; raises EncodingError."""
    name, _, fields = encoded.partition(_END_OF_NAME)
    try:
        return _decoder(name).decode(fields)
    except (KeyError, ValueError, RecursionError) as error:
        raise EncodingError(f"{len(encoded)} bytes cannot be decoded: {type(error).__name__}: {error}") from error


@cache
def _decoder(name: bytes) -> msgpack.Decoder[Any]:
    return msgpack.Decoder(_KINDS[name.decode()], ext_hook=_from_extension)


class CommandLink:
    """The near end: a CommandStore. Single commands of all callers leave together; while a message is under way the next gathers."""

    def __init__(
        self,
        send: Send,
        *,
        rest: Callable[[], Awaitable[object]] | None = None,
        at_once: int = 1,
        waiting: Bound = WAITING,
    ) -> None:
        """`rest` is waited for between messages of several commands, of which `at_once` are under way, see Batcher."""
        self._send = send
        self._single: Batcher[bytes, bytes] = Batcher(send, size=len, rest=rest, at_once=at_once)
        self._room = BatchCapacity(waiting)

    async def apply(self, commands: Sequence[Command]) -> Sequence[Outcome]:
        """See CommandStore.apply; also StoreOverloadedError. What cannot be encoded is CommandFailed."""
        tenants = [tenant_of_new_work(each) for each in commands]
        if None in tenants:
            await self._room.wait()
        encoded = [_encoded(command) for command in commands]
        sizes = [len(each) if isinstance(each, bytes) else 0 for each in encoded]
        loads = loads_of(tenants, sizes)
        if None not in tenants and not all(self._room.has(each.items, each.size, of) for of, each in loads.items()):
            raise StoreOverloadedError(_TOO_MUCH)
        parcels = [each for each in encoded if isinstance(each, bytes)]
        with self._room.taken(loads):
            answers = iter(await self._sent(parcels, tenants[0] if tenants else None))
        return [_outcome(next(answers)) if isinstance(each, bytes) else each for each in encoded]

    async def _sent(self, parcels: Sequence[bytes], first: TenantId | None) -> Sequence[bytes]:
        """Have them sent, one alone in the turn of whose it is."""
        if len(parcels) == 1:
            return [await self._single(parcels[0], first)]
        return await self._send(parcels) if parcels else ()


def apply_now(commands: Sequence[Command], send: Callable[[Sequence[bytes]], Sequence[bytes]]) -> Sequence[Outcome]:
    """Do as CommandLink.apply, in one message of these commands alone, from code that is not asynchronous."""
    encoded = [_encoded(command) for command in commands]
    answers = iter(send([each for each in encoded if isinstance(each, bytes)]))
    return [_outcome(next(answers)) if isinstance(each, bytes) else each for each in encoded]


async def answered(commits: GroupCommit, parcels: Sequence[bytes]) -> list[bytes]:
    """Commit a message, at the far end, and return its outcomes; raises as GroupCommit.apply does.

    If too much waits there, of all or of one tenant, new work alone is refused, of all or of that one: its outcome is the error.
    """
    commands = [_decoded(parcel) for parcel in parcels]
    tenants = [tenant_of_new_work(each) for each in commands]
    loads = loads_of(tenants, [*map(len, parcels)])
    full = {of for of, each in loads.items() if of is not None and not commits.has_room(each.items, each.size, of)}
    fit = [
        (command, len(parcel))
        for command, tenant, parcel in zip(commands, tenants, parcels, strict=True)
        if not isinstance(command, CommandFailed) and tenant not in full
    ]
    outcomes = iter(await commits.apply([each for each, _ in fit], [size for _, size in fit]))
    answers = zip(commands, tenants, strict=True)
    return [_REFUSED if tenant in full else _answer(command, outcomes) for command, tenant in answers]


def _answer(command: Command | CommandFailed, outcomes: Iterator[Outcome]) -> bytes:
    if isinstance(command, CommandFailed):
        return encode(command)
    outcome = next(outcomes)
    try:
        return encode(outcome)
    except EncodingError as error:
        return encode(CommandFailed(f"it is committed, but its outcome did not leave the store: {error}"))


def _encoded(command: Command) -> bytes | CommandFailed:
    try:
        return encode(command)
    except EncodingError as error:
        return CommandFailed(f"it did not leave for the store: {error}")


def _decoded(parcel: bytes) -> Command | CommandFailed:
    try:
        return cast("Command", decode(parcel))
    except EncodingError as error:
        return CommandFailed(f"it did not reach the store: {error}")


def _outcome(answer: bytes) -> Outcome:
    if answer == _REFUSED:
        raise StoreOverloadedError(_TOO_MUCH)
    try:
        return unblocked([cast("Outcome", decode(answer))])[0]
    except EncodingError as error:
        return CommandFailed(f"it is committed, but its outcome did not arrive: {error}")
