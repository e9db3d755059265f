"""Runs ``prerender``, and other programs in Python, in forks of a process that has imported them.

Imports take most of the time of most commands. A fork has its own standard streams, environment
and, on request, terminal; it receives signals and has an exit status like any process.
"""

import asyncio
import atexit
import fcntl
import gc
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import termios
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache
from importlib import import_module
from typing import NoReturn

import prerender
from prerender import cli

_LONGEST_ORDER = 1024**2


class Forked:
    """A process that is not a child of this one, used like an asyncio.subprocess.Process."""

    def __init__(
        self,
        pid: int,
        status: asyncio.StreamReader,
        stdout: asyncio.StreamReader | None,
        stderr: asyncio.StreamReader | None,
    ) -> None:
        self.pid = pid
        self.stdout, self.stderr = stdout, stderr
        self._status = asyncio.create_task(status.read())

    @property
    def returncode(self) -> int | None:
        """Its exit status, negative for a signal; None while it runs."""
        return int(self._status.result()) if self._status.done() else None

    async def wait(self) -> int:
        """Wait for its exit status."""
        return int(await asyncio.shield(self._status))

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


async def fork(
    arguments: Sequence[str],
    environ: dict[str, str],
    streams: Sequence[int],
    *,
    terminal: bool = False,
    program: str = cli.__name__,
) -> Forked:
    """Start ``prerender``, or the ``main`` of another module.

    ``streams``: descriptors as its standard streams, PIPE to read them here, or DEVNULL.

    ``terminal``: its standard input is a terminal, which becomes its controlling terminal.
    """
    order = json.dumps([list(arguments), environ, terminal]).encode()
    readers: list[asyncio.StreamReader | None] = []
    with ExitStack() as stack:
        given = []
        for stream in (*streams, subprocess.PIPE):
            read = None
            if stream == subprocess.PIPE:
                read, stream = os.pipe()  # noqa: PLW2901
                stack.callback(os.close, stream)
            elif stream == subprocess.DEVNULL:
                stream = os.open(os.devnull, os.O_RDWR)  # noqa: PLW2901
                stack.callback(os.close, stream)
            given.append(stream)
            readers.append(None if read is None else await _reader(read))
        socket.send_fds(_forker(program)[0], [order], given)
    *_, stdout, stderr, status = readers
    assert status is not None
    return Forked(int(await status.readline()), status, stdout, stderr)


async def _reader(descriptor: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), _Descriptor(descriptor)
    )
    return reader


class _Descriptor:
    """A descriptor that the event loop closes.

    uvloop would close a file object once more, when another thread may have opened a file with the same
    number. That ended test processes: "Fatal Python error: Aborted", as the loop had lost a descriptor.
    """

    def __init__(self, number: int) -> None:
        self._number = number

    def fileno(self) -> int:
        """Its number."""
        return self._number

    def close(self) -> None:
        """Leave that to the loop."""


@cache
def _forker(program: str) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """The process that forks a program, and the socket for its orders. It ends with this process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(theirs.fileno()), program],
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    return ours, process


def _main(orders: socket.socket, program: str) -> None:
    main = import_module(program).main
    if program == cli.__name__:
        _import_everything()
    gc.freeze()
    poll = select.poll()
    poll.register(orders, select.POLLIN)
    running: dict[int, tuple[int, int]] = {}
    while True:
        for ready, _ in poll.poll():
            if ready in running:
                poll.unregister(ready)
                _report(ready, *running.pop(ready))
                continue
            order, descriptors, _, _ = socket.recv_fds(orders, _LONGEST_ORDER, 4)
            if not order:
                return
            *streams, status = descriptors
            pid = os.fork()
            if not pid:
                orders.detach()
                _become(main, order, streams)
            for stream in streams:
                os.close(stream)
            os.write(status, b"%d\n" % pid)
            ended = os.pidfd_open(pid)
            running[ended] = pid, status
            poll.register(ended, select.POLLIN)


def _report(ended: int, pid: int, status: int) -> None:
    _, code = os.waitpid(pid, 0)
    os.close(ended)
    os.write(status, b"%d" % os.waitstatus_to_exitcode(code))
    os.close(status)


def _import_everything() -> None:
    for module in pkgutil.walk_packages(prerender.__path__, "prerender."):
        # The server of MCP takes a quarter of the time, and only its own command needs it.
        if not module.name.endswith(("__main__", "mcp.server")):
            import_module(module.name)


def _become(main: Callable[[], int | None], order: bytes, streams: Sequence[int]) -> NoReturn:
    arguments, environ, terminal = json.loads(order)
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    # In the background of a shell it is ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if terminal:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)
    os.environ.clear()
    os.environ.update(environ)
    sys.argv[1:] = arguments
    status: str | int | None = 1

    def leave() -> None:
        sys.stdout.flush()
        os._exit(int(status or 0))

    # After all other handlers. To free each object would take half of the time of most commands.
    atexit.register(leave)
    try:
        status = main()
    except SystemExit as ended:
        status = ended.code
    raise SystemExit(status)


if __name__ == "__main__":
    _main(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
