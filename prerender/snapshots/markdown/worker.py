"""Makes Markdown in a process of its own: native code holds up all threads, for 11 ms in 50 kB of HTML.

Should it crash, or take too long, that costs one conversion. The process is started when it is first
needed, and ends with its input, so it outlives nobody. Both sides speak in frames: two lengths and two
texts to it (URL, HTML), one byte and one text from it.
"""

import asyncio
import os
import struct
import subprocess
import sys
from contextlib import suppress

from prerender.snapshots.markdown.convert import markdown_of

_SECONDS = 10.0
_QUESTION = struct.Struct(">LL")
_ANSWER = struct.Struct(">?L")
_NICE = 5


class MarkdownWorker:
    """Converts one snapshot after another. To be closed."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._lock = asyncio.Lock()

    async def markdown_of(self, html: bytes, url: str) -> bytes:
        """The page at ``url`` as Markdown. Raises ValueError where nothing can be made of it."""
        try:
            async with asyncio.timeout(_SECONDS), self._lock:
                done, text = await self._ask(html, url.encode("utf-8", "surrogateescape"))
        except TimeoutError as error:
            raise ValueError("it took too long") from error
        except (OSError, RuntimeError, asyncio.IncompleteReadError) as error:
            # RuntimeError is uvloop's for a pipe that has been closed.
            raise ValueError(f"the process that makes it died: {error!r}") from error
        if not done:
            raise ValueError(text.decode())
        return text

    async def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _ask(self, html: bytes, url: bytes) -> tuple[bool, bytes]:
        if self._process is None or self._process.returncode is not None:
            self._process = await _start()
        process, answered = self._process, False
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(_QUESTION.pack(len(url), len(html)) + url)
            process.stdin.write(html)
            await process.stdin.drain()
            done, length = _ANSWER.unpack(await process.stdout.readexactly(_ANSWER.size))
            text = await process.stdout.readexactly(length)
            answered = True
        finally:
            if not answered:
                # It may be in the middle of a frame, or of something that never ends.
                await self.close()
        return done, text


async def _start() -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", __name__),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # What a terminal sends to us (Ctrl-C) is not meant for it.
        start_new_session=True,
    )


def main() -> None:
    """The process: answers questions until there are no more."""
    os.nice(_NICE)
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    while len(head := source.read(_QUESTION.size)) == _QUESTION.size:
        url_bytes, html_bytes = _QUESTION.unpack(head)
        url = source.read(url_bytes).decode("utf-8", "surrogateescape")
        html = source.read(html_bytes)
        if len(html) < html_bytes:
            return
        try:
            done, text = True, markdown_of(html, url)
        except ValueError as error:
            done, text = False, str(error).encode("utf-8", "replace")
        sink.write(_ANSWER.pack(done, len(text)) + text)
        sink.flush()


if __name__ == "__main__":
    main()
