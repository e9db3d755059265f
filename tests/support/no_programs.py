"""``--fast``: a test is skipped as soon as it starts a program, such as Chromium."""

import sys
from typing import NoReturn

import pytest
import uvloop

_EVENTS = {"subprocess.Popen", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "pty.spawn"}
_refused = False


class Loop(uvloop.Loop):
    """An event loop that starts no programs."""

    async def subprocess_exec(self, *_: object, **__: object) -> NoReturn:
        """Skip the test."""
        _skip()

    async def subprocess_shell(self, *_: object, **__: object) -> NoReturn:
        """Skip the test."""
        _skip()


def refuse() -> None:
    """Skip each test that starts a program from now on."""
    global _refused  # noqa: PLW0603
    if not _refused:
        _refused = True
        sys.addaudithook(lambda event, _: _skip() if event in _EVENTS else None)


def check() -> None:
    """Skip the test, which is about to start a program in a task that it does not wait for."""
    if _refused:
        _skip()


def _skip() -> NoReturn:
    pytest.skip("starts a program")
