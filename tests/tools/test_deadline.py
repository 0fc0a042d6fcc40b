import asyncio
import contextlib
import re
import signal
import threading
import time

import pytest

from owlclaw_ray.tools.deadline import DeadlineReachedError, call_within, run_within

SOON = 0.05


def in_thread(function):
    """Run the function outside the main thread and return what it returned or raised."""
    outcome = []

    def work():
        try:
            outcome.append(function())
        except Exception as error:  # noqa: BLE001 (the test looks at it)
            outcome.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return outcome[0]


def wait_for_ever():
    threading.Event().wait()


def test_what_ends_in_time_returns_its_value_and_raises_its_errors():
    assert call_within(5, lambda: 7) == 7
    with pytest.raises(KeyError):
        call_within(5, lambda: {}["x"])


@pytest.mark.parametrize("seconds", [1e-12, 0.0])
def test_hardly_any_time_is_not_for_ever(seconds):
    with pytest.raises(DeadlineReachedError):
        call_within(seconds, wait_for_ever)


def test_more_time_than_a_timer_can_hold_is_a_long_time():
    assert call_within(1e300, lambda: 7) == 7
    assert in_thread(lambda: call_within(1e300, lambda: 7)) == 7


def test_a_call_that_waits_for_ever_is_interrupted():
    with pytest.raises(DeadlineReachedError):
        call_within(SOON, wait_for_ever)


def test_a_call_that_computes_for_ever_is_interrupted():
    def spin():
        while True:
            pass

    with pytest.raises(DeadlineReachedError):
        call_within(SOON, spin)


def test_a_regular_expression_without_end_is_interrupted():
    with pytest.raises(DeadlineReachedError):
        call_within(SOON, lambda: re.match(r"(a+)+$", "a" * 60 + "b"))


def test_a_handler_that_catches_exceptions_does_not_swallow_the_deadline():
    def stubborn():
        while True:
            with contextlib.suppress(Exception):
                wait_for_ever()

    with pytest.raises(DeadlineReachedError):
        call_within(SOON, stubborn)


def test_a_handler_that_catches_everything_is_interrupted_again():
    def very_stubborn():
        with contextlib.suppress(BaseException):
            wait_for_ever()
        wait_for_ever()

    with pytest.raises(DeadlineReachedError):
        call_within(SOON, very_stubborn)


def test_the_timer_and_the_handler_before_are_there_afterwards():
    fired = threading.Event()
    before = signal.signal(signal.SIGALRM, lambda *_: fired.set())
    timer_before = signal.setitimer(signal.ITIMER_REAL, 30)
    try:
        with pytest.raises(DeadlineReachedError):
            call_within(SOON, wait_for_ever)
        assert 25 < signal.getitimer(signal.ITIMER_REAL)[0] < 30
        signal.raise_signal(signal.SIGALRM)
        assert fired.is_set()
    finally:
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *timer_before)


def test_an_outer_deadline_that_passed_meanwhile_still_ends_the_outer_call():
    def outer():
        with contextlib.suppress(DeadlineReachedError):
            call_within(4 * SOON, wait_for_ever)
        wait_for_ever()

    started = time.monotonic()
    with pytest.raises(DeadlineReachedError):
        call_within(SOON, outer)
    assert time.monotonic() - started < 5


def test_a_coroutine_returns_its_value_and_ends_at_its_deadline():
    async def answer():
        await asyncio.sleep(0)
        return 7

    async def hang():
        await asyncio.Event().wait()

    assert run_within(5, answer) == 7
    with pytest.raises(DeadlineReachedError):
        run_within(SOON, hang)


def test_a_coroutines_own_timeout_error_is_not_the_deadline():
    async def fail():
        raise TimeoutError("the database")

    with pytest.raises(TimeoutError, match="the database"):
        run_within(5, fail)


def test_a_coroutine_that_blocks_its_loop_is_interrupted():
    async def block():
        wait_for_ever()

    with pytest.raises(DeadlineReachedError):
        run_within(SOON, block)


def test_tasks_that_a_coroutine_left_behind_are_cancelled():
    cancelled = []

    async def linger():
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(True)

    async def start():
        task = asyncio.ensure_future(linger())
        await asyncio.sleep(0)
        return task.done()

    assert run_within(5, start) is False
    assert cancelled == [True]


def test_outside_the_main_thread_calls_end_at_their_deadline_too():
    release = threading.Event()

    async def hang():
        await asyncio.Event().wait()

    assert in_thread(lambda: call_within(5, lambda: 7)) == 7
    assert isinstance(in_thread(lambda: call_within(5, lambda: {}["x"])), KeyError)
    assert isinstance(in_thread(lambda: call_within(SOON, release.wait)), DeadlineReachedError)
    assert isinstance(in_thread(lambda: run_within(SOON, hang)), DeadlineReachedError)
    release.set()
