"""What a second process of the proxy gives and costs: forwarding by one, and by two behind nginx.

    .venv/bin/python benchmarks/processes.py [--seconds 3] [--rounds 3]

Requires wrk, nginx and Chromium. The origin is an nginx with a file of 20 kB. Compare the CPU time of a
request: with a CPU for each process, all together forward the sum of what each can do.
The memory is proportional set size: what processes share is counted once (proc(5), Pss).
"""

import argparse
import asyncio
import re
import tempfile
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import measuring
import psutil
import uvloop
from measuring import Measured, Side, median

_BODY_BYTES = 20_000
_CONNECTIONS = 32


def memory_mib(pid: int) -> float:
    """The memory of a process and its descendants, in MiB."""
    kilobytes = 0
    for process in (root := psutil.Process(pid), *root.children(recursive=True)):
        found = re.search(
            r"^Pss:\s+(\d+)", Path(f"/proc/{process.pid}/smaps_rollup").read_text(), re.MULTILINE
        )
        kilobytes += int(found[1]) if found else 0
    return kilobytes / 1024


async def _forwarding(front: Side, proxies: list[Side], seconds: int) -> Measured:
    """One run. The CPU time is that of the proxies, or of nginx if there are none."""
    before = sum(side.cpu_seconds() for side in proxies)
    found = await measuring.wrk(front, "/file", seconds, _CONNECTIONS)
    used = sum(side.cpu_seconds() for side in proxies) - before
    requests = found.requests_per_second * seconds
    return Measured(found.requests_per_second, found.p50_ms, used * 1e6 / requests)


async def main(seconds: int, rounds: int) -> None:
    """Measure both in turns, and print medians."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o755)
        (folder / "file").write_bytes(b"x" * _BODY_BYTES)
        origin = await stack.enter_async_context(measuring.nginx(folder))
        settings = {"PRERENDER_SITE_URL": "https://www.example.com"}
        proxies = [
            await stack.enter_async_context(measuring.proxy(origin.url, **settings))
            for _ in range(2)
        ]
        front = await stack.enter_async_context(measuring.in_front_of(folder, proxies))
        measured = await measuring.in_turns(
            {
                "one": partial(_forwarding, proxies[0], proxies[:1], seconds),
                "one behind nginx": partial(
                    _forwarding,
                    await stack.enter_async_context(measuring.in_front_of(folder, proxies[:1])),
                    proxies[:1],
                    seconds,
                ),
                "two behind nginx": partial(_forwarding, front, proxies, seconds),
            },
            rounds,
        )
        memory = [memory_mib(side.pid) for side in proxies]
    print("| proxies | requests/s | CPU µs of a request | requests/s of a CPU for each |")
    print("|---|---:|---:|---:|")
    for name, found in measured.items():
        cpu = median(found, "cpu_us")
        count = 2 if name.startswith("two") else 1
        rate = median(found, "requests_per_second")
        print(f"| {name} | {rate:,.0f} | {cpu:.0f} | {count * 1e6 / cpu:,.0f} |")
    print(f"\nMemory of each, with an idle browser: {memory[0]:.0f} and {memory[1]:.0f} MiB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(options.seconds, options.rounds))
