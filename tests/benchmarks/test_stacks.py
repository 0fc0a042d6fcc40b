from collections import Counter

import pytest

from benchmarks.stacks import collapsed, our_shares, package_of, read_stacks, said, self_shares

TEXT = """\
<module> (default_worker.py:1);run (ray/worker.py:9);submit (owlclaw_ray/placement/host.py:3);dumps (json/__init__.py:183) 6
<module> (default_worker.py:1);run (ray/worker.py:9);submit (owlclaw_ray/placement/host.py:3);submit (owlclaw_ray/placement/host.py:3) 1
<module> (default_worker.py:1);run (ray/worker.py:9) 3
"""


def test_a_file_is_read_and_written_as_it_was():
    stacks = read_stacks(TEXT)

    assert stacks.total() == 10
    assert read_stacks(collapsed(stacks)) == stacks


def test_equal_stacks_are_one():
    assert read_stacks("a (b.py);c (d.py) 2\na (b.py);c (d.py) 3\n") == Counter({("a (b.py)", "c (d.py)"): 5})


def test_paths_are_those_that_modules_are_imported_by():
    text = (
        "run (/usr/lib/python3.11/threading.py:7);main (/home/me/owlclaw/.venv/lib/python3.11/site-packages/ray/worker.py:2);"
        "wake (/home/me/owlclaw/actors/agent.py:3);handle (/home/me/owlclaw-app/app.py:9);call (ray/_raylet.pyx:5) 1\n"
    )

    assert read_stacks(text, "/home/me/owlclaw") == Counter(
        {
            (
                "run (threading.py:7)",
                "main (ray/worker.py:2)",
                "wake (actors/agent.py:3)",
                "handle (/home/me/owlclaw-app/app.py:9)",
                "call (ray/_raylet.pyx:5)",
            ): 1
        }
    )


@pytest.mark.parametrize("line", ["a (b.py)", "7", "a (b.py) many"])
def test_what_is_no_stack_is_refused(line):
    with pytest.raises(ValueError, match="not a stack and its count"):
        read_stacks(line)


@pytest.mark.parametrize(
    ("frame", "package"),
    [
        ("BaseEventLoop._run_once (asyncio/base_events.py:1845)", "asyncio"),
        ("poll (select.py)", "select"),
        ("execute_task (ray/_raylet.pyx:1788)", "ray"),
        ("<listcomp> (owlclaw_ray/placement/host.py:3)", "owlclaw_ray"),
        ("handle (/home/me/application/app.py:9)", "app"),
        ("no path at all", "no path at all"),
    ],
)
def test_the_package_of_a_frame_is_where_its_code_is(frame, package):
    assert package_of(frame) == package


def test_the_innermost_frame_says_whose_code_it_was():
    assert self_shares(read_stacks(TEXT)) == {"json": 0.6, "ray": 0.3, "owlclaw_ray": 0.1}


def test_a_function_of_ours_answers_for_what_it_calls_and_counts_once_when_it_calls_itself():
    shares = our_shares(read_stacks(TEXT))

    assert shares == {"submit (owlclaw_ray/placement/host.py:3)": 0.7}
    assert said(shares, 3) == "submit (owlclaw_ray/placement/host.py:3) 70%"


def test_a_thread_without_python_frames_is_in_native_code():
    assert self_shares(read_stacks(" 31\n")) == {"native code": 1.0}


def test_nothing_sampled_is_no_share():
    assert self_shares(read_stacks("")) == {}
