"""The vectors of what was asked lately, so that a repeated question costs its embedding once."""

from __future__ import annotations

import threading
from array import array
from collections import OrderedDict
from collections.abc import Sequence

from owlclaw_ray.errors import BudgetExhaustedError, ToolTimeoutError
from owlclaw_ray.memory.embedding import Embedder

_KEPT = 256


class QueryVectors:
    """Of all agents and embedders of a process: a vector depends on the question's text alone, until a provider gives a model's
    vectors another length. For any number of threads.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._known: OrderedDict[tuple[str, str], Sequence[float]] = OrderedDict()

    def of(self, query: str, embedder: Embedder | None) -> tuple[Sequence[float] | None, str]:
        """Return the query's vector, or none: because there is no embedder, or, then with the reason, because it failed."""
        if embedder is None:
            return None, ""
        key = (embedder.id, query)
        with self._guard:
            known = self._known.get(key)
            if known is not None:
                self._known.move_to_end(key)
        try:
            if known is not None and len(known) == embedder.dimension:
                return known, ""
            (vector,) = embedder.embed_queries([query]).vectors
        except (ToolTimeoutError, TimeoutError, MemoryError):
            raise
        except BudgetExhaustedError as error:
            return None, f"no vector for the question, words only: {error}"
        except Exception as error:  # noqa: BLE001 - a provider, a library or its files may fail in any way
            return None, f"the embedder {embedder.id} failed, words only: {type(error).__name__}: {error}"[:300]
        with self._guard:
            self._known[key] = array("f", vector)
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return vector, ""
