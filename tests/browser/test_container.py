"""The limits of containers and services, from files like those of Linux and in a real control group."""

import asyncio
import math
import os
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from prerender.browser import container

MIB = 1024**2
CASES: dict[str, tuple[str, dict[str, str], int, float]] = {
    "a container": ("0::/", {"memory.max": "2147483648", "cpu.max": "150000 100000"}, 2048, 1.5),
    "no limits": ("0::/", {"memory.max": "max", "cpu.max": "max 100000"}, 0, 0),
    "no controllers": ("0::/", {}, 0, 0),
    "a service": (
        "0::/system.slice/prerender.service",
        {
            "system.slice/prerender.service/memory.max": str(2048 * MIB),
            "system.slice/prerender.service/cpu.max": "max 100000",
            "system.slice/cpu.max": "50000 100000",
        },
        2048,
        0.5,
    ),
    "a lower limit above": (
        "0::/user.slice/one",
        {
            "user.slice/one/memory.max": str(4096 * MIB),
            "user.slice/memory.max": str(1024 * MIB),
        },
        1024,
        0,
    ),
    "the path of the host": ("0::/docker/0a1b", {"memory.max": str(512 * MIB)}, 512, 0),
    "version 1": (
        "4:memory:/docker/a\n1:cpu,cpuacct:/docker/a\n0::/",
        {
            "memory/docker/a/memory.limit_in_bytes": str(512 * MIB),
            "memory/memory.limit_in_bytes": "9223372036854771712",
            "cpu/docker/a/cpu.cfs_quota_us": "200000",
            "cpu/docker/a/cpu.cfs_period_us": "100000",
            "cpu/cpu.cfs_quota_us": "-1",
        },
        512,
        2,
    ),
    "nonsense": ("0::/", {"memory.max": "", "cpu.max": "1 0"}, 0, 0),
}


@pytest.mark.parametrize("case", CASES)
def test_limits(tmp_path: Path, case: str) -> None:
    groups, files, memory, cpus = CASES[case]
    own = tmp_path / "own"
    own.write_text(groups + "\n")
    root = tmp_path / "cgroup"
    root.mkdir()
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")
    assert container.memory_limit(root, own) == memory * MIB
    assert container.cpu_quota(root, own) == cpus


def test_the_memory_that_is_left(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("0::/a/b\n")
    for folder, limit, used in (("a/b", "2000", "1500"), ("a", "1800", "1700"), (".", "max", "9")):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "memory.max").write_text(limit)
        (tmp_path / folder / "memory.current").write_text(used)
    assert container.memory_left(tmp_path, own) == 100
    (tmp_path / "a" / "memory.current").write_text("1900")
    assert container.memory_left(tmp_path, own) == 0


def test_without_control_groups(tmp_path: Path) -> None:
    assert container.memory_limit(tmp_path, tmp_path / "none") == 0
    assert container.memory_left(tmp_path, tmp_path / "none") == math.inf
    assert container.cpu_quota(tmp_path, tmp_path / "none") == 0
    assert container.cpu_seconds(tmp_path, tmp_path / "none") == 0


PROGRAM = """
import sys
from prerender.config import Settings
from prerender.browser import defaults
for _ in sys.stdin:
    settings = Settings(origin={"url": "http://127.0.0.1"})
    print(defaults.page_count(settings), defaults.limits(settings).memory, flush=True)
"""


@pytest.mark.ci_only
async def test_pages_and_memory_fit_a_real_control_group() -> None:
    version_1 = container.ROOT / "memory"
    root = version_1 if version_1.is_dir() else container.ROOT
    limit = "memory.limit_in_bytes" if version_1.is_dir() else "memory.max"
    group = root / f"prerender-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / limit).write_text(str(2048 * MIB))
    except OSError as error:
        with suppress(OSError):
            group.rmdir()
        pytest.skip(f"no control group can be made here: {error}")
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            PROGRAM,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        (group / "cgroup.procs").write_text(str(process.pid))
        for mebibytes, most_pages in ((2048, 4), (1024, 1), (256, 1)):
            (group / limit).write_text(str(mebibytes * MIB))
            process.stdin.write(b"\n")
            async with asyncio.timeout(60):
                pages, memory = map(int, (await process.stdout.readline()).split())
            assert 1 <= pages <= most_pages
            # Less than a browser with one page needs is not asked for.
            assert memory <= max(512, mebibytes - 300) * MIB
        await process.communicate(b"")
    finally:
        group.rmdir()
