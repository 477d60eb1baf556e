"""The limit that holds, on made-up machines."""

import pytest

from legroom.engines.host.limits import read_limits

GIB = 2**30
MEMINFO = "MemTotal:       16777216 kB\nMemFree:  100 kB\n"
UNLIMITED = (
    "Limit                     Soft Limit           Hard Limit           Units\n"
    "Max data size             unlimited            unlimited            bytes\n"
    "Max address space         unlimited            unlimited            bytes\n"
)


@pytest.fixture
def machine(tmp_path):
    def make(**files):
        for path, text in {"proc/meminfo": MEMINFO, "proc/self/limits": UNLIMITED, **files}.items():
            place = tmp_path / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
        return read_limits(tmp_path)

    return make


def test_the_machine_when_nothing_else_limits(machine):
    limits = machine()
    assert limits.tightest.limit_bytes == 16 * GIB
    assert "RAM" in limits.tightest.reason


def test_version_2_takes_the_tightest_group_above(machine):
    limits = machine(
        **{
            "proc/self/cgroup": "0::/user.slice/job\n",
            "sys/fs/cgroup/user.slice/memory.max": f"{2 * GIB}\n",
            "sys/fs/cgroup/user.slice/job/memory.max": "max\n",
            "sys/fs/cgroup/user.slice/job/memory.high": f"{GIB}\n",
        }
    )
    assert limits.tightest.limit_bytes == 2 * GIB
    assert "/sys/fs/cgroup/user.slice/memory.max" in limits.tightest.reason
    assert "memory.high" in limits.notes[0]


def test_inside_a_container_the_group_is_mounted_as_the_root(machine):
    limits = machine(
        **{"proc/self/cgroup": "0::/docker/3f\n", "sys/fs/cgroup/memory.max": f"{3 * GIB}\n"},
    )
    assert limits.tightest.limit_bytes == 3 * GIB


def test_version_1_ignores_the_number_that_means_no_limit(machine):
    limits = machine(
        **{
            "proc/self/cgroup": "4:memory:/jobs/a\n0::/\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/memory/jobs/a/memory.limit_in_bytes": f"{GIB}\n",
        }
    )
    assert limits.tightest.limit_bytes == GIB
    assert len(limits.found) == 2


@pytest.mark.parametrize(("title", "name"), [("address space", "ulimit -v"), ("data size", "ulimit -d")])
def test_ulimits(machine, title, name):
    line = f"Max {title:<21} {GIB}           unlimited            bytes\n"
    limits = machine(**{"proc/self/limits": line})
    assert limits.tightest.limit_bytes == GIB
    assert name in limits.tightest.reason


def test_no_files_at_all(tmp_path):
    limits = read_limits(tmp_path)
    assert limits.found == ()
    assert limits.tightest.limit_bytes > 2**60


def test_this_machine_has_a_limit():
    assert 0 < read_limits().tightest.limit_bytes < 2**60
