"""Whether calls that come late are still their hosts' to make."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from owlclaw_ray.domain.tool_call import CONFIRM_SECONDS, Ownership, ToolInvocation
from owlclaw_ray.errors import RetryableError, StoreUnavailableError
from owlclaw_ray.kernel.machine import boot_id
from owlclaw_ray.store.commands import Appended, AppendJournal, Command, Outcome, StaleEpoch

ANSWER_SECONDS = 5.0
"""For how long the store is asked whose a run is: meanwhile the call holds its slot."""


class OwnershipCheck:
    """Asks the store before a call whose run may be another host's by now.

    Ray keeps a task until there is a process for it, for as long as that takes, and the host of a machine that is cut off goes on
    meanwhile: so it is the worker that looks how late it is.
    """

    def __init__(
        self,
        commit: Callable[[Sequence[Command]], Sequence[Outcome]],
        *,
        monotonic: Callable[[], float] = time.monotonic,
        machine: str = "",
    ) -> None:
        """`commit` may raise RetryableError. `machine` is whose clock `monotonic` is: this one's."""
        self._commit, self._monotonic, self._machine = commit, monotonic, machine or boot_id()
        self._away: tuple[float, RetryableError] | None = None
        """Since when the store does not answer, and how it failed to."""

    def refusal(self, invocation: ToolInvocation) -> str:
        """Return why the call must not be made any more; empty if it may be. Raises RetryableError if that is not to be known.

        A store that has not answered is not asked again for ANSWER_SECONDS: a task has many calls.
        """
        owned = invocation.owned
        if owned is None or not self._is_late(owned):
            return ""
        if self._away is not None and self._monotonic() - self._away[0] < ANSWER_SECONDS:
            raise self._away[1]
        try:
            self._away, why = None, self._ask(invocation, owned)
        except RetryableError as error:
            self._away = self._monotonic(), error
            raise
        return why

    def _is_late(self, owned: Ownership) -> bool:
        return owned.machine != self._machine or self._monotonic() - owned.at >= CONFIRM_SECONDS

    def _ask(self, invocation: ToolInvocation, owned: Ownership) -> str:
        (outcome,) = self._commit([AppendJournal(invocation.run_id, invocation.agent, owned.epoch, (), (), {})])
        match outcome:
            case Appended(over=True):
                return "its run is over"
            case Appended(cancel_requested=True):
                return "its run was asked to end"
            case Appended():
                return ""
            case StaleEpoch():
                return "its run goes on elsewhere"
            case _:
                raise StoreUnavailableError(f"whose run {invocation.run_id} is: {outcome}")
