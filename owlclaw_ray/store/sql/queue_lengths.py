"""How long queues were: noting it, and reading it."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, select

from owlclaw_ray.domain.queue_length import KEPT, LengthRange, Queue, QueueMinute
from owlclaw_ray.domain.usage import Grain, floored
from owlclaw_ray.store.commands import NoteQueueLengths, QueueLengthsNoted
from owlclaw_ray.store.sql.codec import from_micros, to_micros
from owlclaw_ray.store.sql.command_registry import applies
from owlclaw_ray.store.sql.queries import reads
from owlclaw_ray.store.sql.schema import queue_minutes
from owlclaw_ray.store.sql.working_set import RowChange, WorkingSet
from owlclaw_ray.store.usage import QueueMinutes


@applies(NoteQueueLengths, needs=lambda _needs, _command: None)
def note_queue_lengths(store: WorkingSet, command: NoteQueueLengths) -> QueueLengthsNoted:
    """Note them; the statement takes what it finds of the same minute into account."""
    minute = to_micros(floored(command.at, Grain.MINUTE))
    noted = store.changes[RowChange.QUEUE_MINUTE]
    for queue, length in command.lengths.items():
        _, _, least, most = noted.get((minute, queue.value), (minute, queue.value, length, length))
        noted[minute, queue.value] = (minute, queue.value, min(least, length), max(most, length))
    before = to_micros(command.at - KEPT)
    store.changes[RowChange.OLD_QUEUE_MINUTES][before] = (before,)
    return QueueLengthsNoted()


@reads(QueueMinutes)
def _read_queue_minutes(connection: Connection, query: QueueMinutes) -> Sequence[QueueMinute]:
    columns = queue_minutes.c
    known = columns.queue.in_([queue.value for queue in Queue])  # a newer server notes more of them
    found = select(queue_minutes).where(columns.begins_at >= to_micros(query.since), known)
    return [
        QueueMinute(Queue(row.queue), from_micros(row.begins_at), LengthRange(row.least, row.most))
        for row in connection.execute(found.order_by(columns.begins_at, columns.queue))
    ]
