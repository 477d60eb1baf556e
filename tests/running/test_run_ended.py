"""Why a process ended, from what a supervisor can see."""

import pytest

from legroom.running.ended import Memory, read_oom_kills, why
from legroom.units import GIB

CRASH = """Fatal Python error: Segmentation fault

Current thread 0x00007f (most recent call first):
  File "/lib/python3.11/site-packages/tensorflow/python/eager/execute.py", line 53 in quick_execute
  File "/home/user/train.py", line 12 in <module>
"""


def test_an_exit_code_is_the_scripts_own():
    ended = why(7, Memory(), "")
    assert (ended.code, ended.can_go_on, ended.message) == (7, False, "")


@pytest.mark.parametrize("number", [11, 6, 7])
def test_a_crash_is_taken_up_again_with_the_line_of_the_script(number):
    ended = why(-number, Memory(), CRASH)
    assert ended.can_go_on
    assert "/home/user/train.py:12" in ended.message


@pytest.mark.parametrize("number", [2, 15, 1])
def test_who_was_told_to_end_is_not_started_again(number):
    assert not why(-number, Memory(), "").can_go_on


def test_a_kill_that_the_kernel_has_counted_was_for_memory():
    ended = why(-9, Memory(GIB, GIB, None, oom_kills=1), "")
    assert ended.can_go_on
    assert ended.memory is True
    assert "1.0 GiB" in ended.message


def test_a_kill_with_nothing_to_show_for_it():
    ended = why(-9, Memory(1, 1, None, 0), "")
    assert ended.can_go_on
    assert ended.memory is False


def test_the_kernels_count_is_read_from_the_own_group(tmp_path):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/a/b\n")
    group = tmp_path / "sys/fs/cgroup/a/b"
    group.mkdir(parents=True)
    (group / "memory.events").write_text("low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n")
    (group.parent / "memory.events").write_text("oom_kill 40\n")
    assert read_oom_kills(tmp_path) == 2


def test_a_machine_without_control_groups_counts_nothing(tmp_path):
    assert read_oom_kills(tmp_path) == 0
