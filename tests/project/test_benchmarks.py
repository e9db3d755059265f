"""All benchmarks run, in a short form whose figures mean nothing."""

import asyncio
import subprocess
import sys

import pytest

from tests.support.commands import ROOT, in_

SHARED = {"bare_loop.py", "capacity_model.py", "measuring.py", "renderers.py", "replicas.py"}
SHORT = {
    "listing.py": "--snapshots 100",
}
LONG = {
    # Exits with 1 if the model is more than 20 % from the simulation.
    "capacity.py": "--pages 100000 --periods 1",
    "against_prerender.py": "--only fetch-that",
    "cached_path.py": "--seconds 1 --rounds 1",
    "chaos.py": "--seconds 2 --pages 1 --clients 1",
    "dead_endpoint.py": "--pages 3 --rounds 1",
    "everything.py": "--quick",
    "forwarding.py": "--seconds 1 --rounds 1",
    "growth.py": "--quick",
    "misses.py": "--quick",
    "neighbours.py": "--only endless-script --renders 3 --at-once 2",
    "processes.py": "--seconds 1 --rounds 1",
    "proxy_under_renders.py": "--seconds 1 --rounds 1 --crawlers 1",
    "revalidation.py": "--pages 3 --at-once 1",
    # Exits with 1 if a response was wrong, or something is stored with two contents.
    "scaling_out.py": "--urls 100 --seconds 25 --at-once 6",
    "shared_assets.py": "--states 2 --pages 1",
    "soak.py": "--heavy 1 --small 5 --pages 1",
    "stores.py": "--seconds 1 --rounds 1",
    "telemetry.py": "--rounds 1",
    "visits.py": "--seconds 1 --rounds 1",
    "warming.py": "--pages 6 --parts 2 --listed 2000",
}


def test_each_is_run_here() -> None:
    scripts = {file.name for file in (ROOT / "benchmarks").glob("*.py")}
    assert scripts - SHARED == SHORT.keys() | LONG.keys()


@pytest.mark.ci_only
@pytest.mark.parametrize("script", SHORT)
async def test_short(script: str) -> None:
    await _runs(script, SHORT[script])


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("script", LONG)
async def test_long(script: str) -> None:
    await _runs(script, LONG[script])


# In one process: each imports the same.
_EACH = """
import runpy, sys
sys.path.insert(0, "benchmarks")
for script in sys.argv[1:]:
    sys.argv = [script, "--help"]
    try: runpy.run_path(f"benchmarks/{script}", run_name="__main__")
    except SystemExit as end: assert not end.code, script
"""


@pytest.mark.long
def test_those_that_take_long_can_be_started() -> None:
    printed = in_(ROOT, sys.executable, "-c", _EACH, *LONG)
    assert [script for script in LONG if f"usage: {script} " not in printed] == []


async def _runs(script: str, options: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, f"benchmarks/{script}", *options.split()),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, err.decode()
    assert out, "it prints no figures"
