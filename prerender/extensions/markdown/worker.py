"""Converts to Markdown in a separate process: the native code blocks all threads, 11 ms for 50 kB.

A crash or a timeout costs one conversion. The process is started on first use, and exits when its input
is closed, so it never outlives the proxy. Messages are frames: two lengths and two strings (URL, HTML)
to the process, one byte and one string from it.
"""

import asyncio
import os
import struct
import subprocess
import sys
import traceback
from contextlib import suppress

from prerender.extensions.markdown.convert import markdown_of

_SECONDS = 10.0
_QUESTION = struct.Struct(">LL")
_RESULT = struct.Struct(">?L")
_NICE = 5


class MarkdownWorker:
    """Converts one snapshot after another. Must be closed."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._lock = asyncio.Lock()

    async def markdown_of(self, html: bytes, url: str) -> bytes:
        """The page at ``url`` as Markdown. Raises ValueError if it cannot be converted."""
        try:
            async with asyncio.timeout(_SECONDS), self._lock:
                done, text = await self._ask(html, url.encode("utf-8", "surrogateescape"))
        except TimeoutError as error:
            raise ValueError("it took too long") from error
        except (OSError, RuntimeError, asyncio.IncompleteReadError) as error:
            # uvloop raises RuntimeError for a closed pipe.
            raise ValueError(f"the converter process died: {error!r}") from error
        if not done:
            raise ValueError(text.decode())
        return text

    async def close(self) -> None:
        """Stop the process."""
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
            done, length = _RESULT.unpack(await process.stdout.readexactly(_RESULT.size))
            text = await process.stdout.readexactly(length)
            answered = True
        finally:
            if not answered:
                # It may be in the middle of a frame, or in an endless loop.
                await self.close()
        return done, text


async def _start() -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", __name__),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # Signals of the terminal (Ctrl-C) are for the parent only.
        start_new_session=True,
    )


def main() -> None:
    """The main function of the process: handles requests until its input is closed."""
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
        except Exception as error:  # rather than start a new process for each such page
            traceback.print_exc()
            done, text = False, f"bug: {error!r}".encode("utf-8", "replace")
        sink.write(_RESULT.pack(done, len(text)) + text)
        sink.flush()


if __name__ == "__main__":
    main()
