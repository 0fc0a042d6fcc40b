from __future__ import annotations

from datetime import timedelta

from owlclaw_ray.domain.journal import EntryKind, JournalEntry
from owlclaw_ray.domain.run import Run, RunStatus
from owlclaw_ray.engine.group_commit import Watchers
from owlclaw_ray.engine.watching import RunWatch
from owlclaw_ray.ids import DEFAULT_TENANT, RunId
from owlclaw_ray.testing.store_commands import AGENT, NOW, submission

RUN = RunId("run_1")


class EndingBetweenReads:
    """A store whose one run ends as soon as anything of it was read, after whatever was read."""

    def __init__(self):
        self._status = RunStatus.RUNNING
        self._entries = [JournalEntry(1, EntryKind.RUN_QUEUED, NOW)]

    def _end(self):
        if not self._status.final:
            self._status = RunStatus.COMPLETED
            self._entries.append(JournalEntry(2, EntryKind.RUN_FINISHED, NOW + timedelta(seconds=1)))

    async def run(self, tenant, run_id):
        found = Run(run_id, 1, AGENT, submission(run_id).trigger, self._status, NOW)
        self._end()
        return found

    async def journal(self, tenant, run_id, after):
        found = [entry for entry in self._entries if entry.seq > after]
        self._end()
        return found


async def test_a_run_that_ends_while_it_is_read_is_never_seen_final_without_its_last_entry():
    watch = RunWatch(EndingBetweenReads(), Watchers())
    seen, after, final = [], 1, False
    while not final:
        watched = await watch.watch(DEFAULT_TENANT, RUN, after, 1)
        seen += [entry.kind for entry in watched.entries]
        after, final = after + len(watched.entries), watched.status.final

    assert seen == [EntryKind.RUN_FINISHED]
