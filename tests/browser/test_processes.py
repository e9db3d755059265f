"""What the kernel reports about processes."""

import asyncio
import os
from asyncio.subprocess import PIPE

from prerender.browser.proc import Idleness
from tests.support import raw

COUNTS = "while read line; do i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done; echo done; done"


async def test_idleness() -> None:
    idleness = Idleness()
    assert not idleness.lasts()
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", f"echo; {COUNTS}", stdin=PIPE, stdout=PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    async with asyncio.timeout(raw.SECONDS):
        await process.stdout.readline()
        idleness.begin([process.pid])
        assert idleness.lasts()
        process.stdin.write(b"\n")
        await process.stdout.readline()
        assert not idleness.lasts()
        idleness.begin([process.pid])
        assert idleness.lasts()
        process.stdin.close()
        await process.wait()
    assert not idleness.lasts()
    idleness.begin([os.getpid(), process.pid])
    assert not idleness.lasts()
