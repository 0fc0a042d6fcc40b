"""An application as type checkers see it: every way to write a decorator leaves the function's type as it is."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, assert_type

from owlclaw_ray import AgentRef, OwlClaw

app = OwlClaw("desk")


@app.tool
def price(article: str) -> int:
    """Say what an article costs."""
    return len(article)


@app.tool()
def stock(article: str) -> int:
    """Say how many of an article are there."""
    return len(article)


@app.tool(timeout=2.0)
def weight(article: str) -> float:
    """Say what an article weighs."""
    return float(len(article))


@app.tool("catalogue.find", tags=["network"])
def find(text: str) -> list[str]:
    """Find articles."""
    return [text]


@app.handler
async def sell(article: str) -> None:
    """Sell an article."""
    del article


@app.handler("refund", permission="write")
def give_back(order: str) -> bool:
    """Give the money back."""
    return bool(order)


@app.state
def orders() -> int:
    return 1


@app.state(ttl=5)
def till(agent: AgentRef) -> str:
    return agent.agent_id


@app.state("opening-hours")
def hours() -> str:
    return "9 to 5"


@app.event_source
def mail() -> list[str]:
    return []


@app.event_source("letters")
def post() -> list[str]:
    return []


if TYPE_CHECKING:
    assert_type(price("a"), int)
    assert_type(stock("a"), int)
    assert_type(weight("a"), float)
    assert_type(find("a"), list[str])
    assert_type(give_back("a"), bool)
    assert_type(orders(), int)
    assert_type(hours(), str)
    assert_type(mail(), list[str])
    assert_type(post(), list[str])
    _sell: Callable[[str], Coroutine[Any, Any, None]] = sell
    _till: Callable[[AgentRef], str] = till
    app.tool("wrong", effect="sometimes")  # type: ignore[call-overload]
    app.tool(permision="write")  # type: ignore[call-overload]
