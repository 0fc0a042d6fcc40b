"""Which questions there are, and which belong together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from benchmarks.question import Size

EXTRAS: Mapping[str, str] = {
    "runs": "",
    "ingress": "",
    "tenants": "",
    "fleet": "",
    "activation": "",
    "placement": "",
    "tools": "",
    "models": "",
    "growth": "",
    "idle": "",
    "endurance": "",
    "profile": "bench",
    "schedules": "",
    "tracing": "",
    "retrieval": "local-embeddings",
    "load": "bench",
    "startup": "",
    "followers": "",
    "console": "",
    "memory": "",
    "peers": "peers",
    "chaos": "",
}
"""Every question with the optional extra of owlclaw-ray that it needs."""
_MODULES: Mapping[str, str] = {"load": "load_test"}
"""Questions whose module has another name."""


@dataclass(frozen=True, slots=True)
class Suite:
    """Questions that are asked together."""

    questions: tuple[str, ...]
    size: Size
    about: str


SUITES: Mapping[str, Suite] = {
    "smoke": Suite(("runs", "ingress"), Size.SMOKE, "whether everything works, in two minutes"),
    "full": Suite(
        (
            "runs",
            "ingress",
            "tenants",
            "fleet",
            "activation",
            "placement",
            "tools",
            "models",
            "growth",
            "idle",
            "endurance",
            "profile",
            "schedules",
            "tracing",
            "load",
            "startup",
            "followers",
            "console",
            "memory",
            "retrieval",
        ),
        Size.FULL,
        "all questions about OwlClaw alone",
    ),
    "peers": Suite(("peers",), Size.FULL, "the same job on other runtimes"),
    "chaos": Suite(("chaos",), Size.FULL, "what is lost or repeated when processes are killed"),
}


@dataclass(frozen=True, slots=True)
class Asking:
    """A question, and how much is asked of the machine."""

    question: str
    size: Size


def module_of(question: str) -> str:
    """Return the name of the module that answers a question."""
    return f"benchmarks.{_MODULES.get(question, question)}"


def chosen(names: Iterable[str], size: Size | None) -> list[Asking]:
    """Return what to ask for these suites and questions, each question once; `size` overrides the suites' own.

    A question that is named itself is asked in full. Raises ValueError for a name that is neither.
    """
    asking: dict[str, Asking] = {}
    for name in names:
        if name in SUITES:
            suite = SUITES[name]
            questions, default = suite.questions, suite.size
        elif name in EXTRAS:
            questions, default = (name,), Size.FULL
        else:
            raise ValueError(f"{name!r} is neither a suite ({', '.join(SUITES)}) nor a question ({', '.join(EXTRAS)})")
        for question in questions:
            asking.setdefault(question, Asking(question, size or default))
    return list(asking.values())
