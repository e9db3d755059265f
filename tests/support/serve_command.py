"""``prerender serve`` as a process."""

import asyncio
import os
import re
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

from aiohttp import ClientSession

from tests.support import processes
from tests.support.prestarted import Forked, fork
from tests.support.raw import SECONDS


class Command:
    """A running command. ``folder``: its temporary files."""

    def __init__(self, process: Forked, folder: Path) -> None:
        self.process = process
        self.folder = folder
        self.url = self.admin_url = self.admin_token = ""
        self.sessions: set[int] = set()

    async def serving(self) -> None:
        """Wait for the log line with its URLs."""
        while not self.url:
            if found := re.search(r"^.*serving.*$", await self.line(), re.MULTILINE):
                self.url, self.admin_url = (
                    re.search(rf" {name}=(\S+?)/?( |$)", found[0])[1]  # type: ignore[index]
                    for name in ("url", "dashboard")
                )
                token = re.search(r" admin_token=(\S+)", found[0])
                self.admin_token = token[1] if token else ""

    async def line(self) -> str:
        """The next line of its standard error."""
        assert self.process.stderr is not None
        async with asyncio.timeout(SECONDS):
            line = (await self.process.stderr.readline()).decode()
        assert line, "it ended"
        return line

    async def logged(self, event: str) -> str:
        """The next line with this event."""
        while event not in (line := await self.line()).split():
            pass
        return line

    async def rest(self) -> str:
        """The rest of its standard error. Waits for its end."""
        assert self.process.stderr is not None
        async with asyncio.timeout(SECONDS):
            return (await self.process.stderr.read()).decode()

    async def ready(self, client: ClientSession) -> None:
        """Wait until it can render."""
        await self.serving()
        async with asyncio.timeout(SECONDS):
            while (await client.get(f"{self.admin_url}/readyz")).status != 200:
                await asyncio.sleep(0.01)
        self.see()

    async def launching(self) -> None:
        """Wait until it starts a browser, or ends."""
        async with asyncio.timeout(SECONDS):
            while not self.see() and self.process.returncode is None:
                await asyncio.sleep(0.001)

    def see(self) -> bool:
        """Note the sessions of its browsers. Returns whether there are any."""
        self.sessions.update(processes.sessions(self.process.pid))
        return bool(self.sessions)

    async def ended(self) -> int:
        """Wait for its exit status; negative if a signal ended it."""
        async with asyncio.timeout(SECONDS):
            return await self.process.wait()

    async def nothing_left(self) -> None:
        """Wait until no process and no folder of its browsers is left."""
        await processes.all_gone(self.sessions, self.folder)


StartCommand = Callable[..., Awaitable[Command]]


@asynccontextmanager
async def starting(folder: Path) -> AsyncIterator[StartCommand]:
    """Starts ``prerender serve`` in an environment without other settings; kills it at the end.

    ``folder``: for temporary files. Raises AssertionError if a browser's process or file is left.
    """
    async with AsyncExitStack() as stack:

        async def start(
            origin: str = "http://127.0.0.1:9", *, config: str = "", **settings: str
        ) -> Command:
            ordinary = {"SERVER_PORT": "0", "ADMIN_PORT": "0", "SERVER_GRACE": "5"}
            settings = ordinary | {"CACHE_TIMEOUT": "20"} | settings
            environment = {f"PRERENDER_{name}": value for name, value in settings.items()}
            environment |= {
                "PATH": os.environ["PATH"],
                "PRERENDER_ORIGIN_URL": origin,
                "PRERENDER_BROWSER_PAGES": "1",
                "TMPDIR": str(folder),
            }
            arguments = ["serve", *(["--config", config] if config else [])]
            process = await fork(arguments, environment, (DEVNULL, DEVNULL, PIPE), terminal=False)
            command = Command(process, folder)
            stack.push_async_callback(_end, command)
            return command

        yield start


async def _end(command: Command) -> None:
    with suppress(ProcessLookupError):
        command.process.kill()
    await command.process.wait()
    await command.nothing_left()
