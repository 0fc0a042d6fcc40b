"""A provider's embedding model without a network, as a memory store asks it."""

from owlclaw_ray.domain.embedding import EmbeddingCalls, EmbeddingReply
from owlclaw_ray.domain.model import FailedAttempt
from owlclaw_ray.domain.quota import NO_QUOTAS
from owlclaw_ray.domain.run import Usage
from owlclaw_ray.errors import ModelUnavailableError
from owlclaw_ray.memory.embedders import ConfiguredEmbedders
from owlclaw_ray.policy.embeddings import BudgetedEmbeddings
from owlclaw_ray.store.commands import LedgerAppended
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.testing.ids import SequentialIds


class Provider:
    """Gives every text the same vector, for a quarter of a dollar a text, after so many attempts that failed; or none."""

    def __init__(self, failing=0):
        self.asked, self.recorded, self.is_down, self.failing = [], [], False, failing

    def ask(self, request):
        if self.is_down:
            raise ModelUnavailableError("the provider is down")
        self.asked.append(request.texts)
        number = len(request.texts)
        attempts = (FailedAttempt(request.model, "busy", retryable=True),) * self.failing
        return EmbeddingReply(((1.0, 0.0, 0.0, 0.0),) * number, Usage(number, cost=0.25 * number), attempts)

    async def load(self):
        """Have nothing to load."""

    async def embed(self, request):
        return self.ask(request)

    def embedders(self, clock=None):
        """Return it as embedders of agents without budgets."""
        paid = BudgetedEmbeddings(
            self.ask,
            apply=self._apply,
            budgets=lambda _: (),
            quotas=lambda _: NO_QUOTAS,
            clock=clock or ManualClock(),
            ids=SequentialIds(),
        )
        return ConfiguredEmbedders("litellm:openai/x", paid, EmbeddingCalls())

    def _apply(self, commands):
        self.recorded += [record for command in commands for record in command.records]
        return [LedgerAppended()] * len(commands)
