"""The DevTools protocol over pyppeteer's connection. Only this module imports pyppeteer.

pyppeteer 2.0.0 drives today's Chromium but is not maintained; what a server must not inherit is
mended here, and each mend has a test against a fake DevTools server:

- A caller that stops waiting cancels its future; pyppeteer's receive loop then dies of
  InvalidStateError and the browser goes deaf. Here an answer that nobody waits for is dropped.
- A listener that raises, or an ``async def`` listener, kills the loop or never runs. Here the first
  is logged, without harm to the other listeners, and the second refused.
- pyppeteer needs a port, which anybody on the machine may use who finds it: a page of the site's own
  server too. Here the protocol is spoken over a socket that only we and the browser have.
- On a dead socket pyppeteer polls at full speed or never tells. Here every loss of the connection,
  garbage included, ends in ``closed``, and every waiting call fails with BrowserGone.
- A page can crash before its session is known to pyppeteer. Here a session exists from the event that
  announces it, which comes before the answer to ``attach``.
- pyppeteer wraps each message of a page in a message of the browser, JSON inside JSON. Here sessions
  are flat (``Target.attachToTarget`` with ``flatten``), so a snapshot is parsed once.
- pyppeteer's calls have no deadline. Here each has one.
"""

import asyncio
import inspect
import json
import socket
import time
from collections.abc import Callable, Iterable
from typing import Any, Self

import structlog
from pyppeteer.connection import CDPSession, Connection, EventEmitter

from prerender.errors import BrowserGone, RenderError

Params = dict[str, Any]
Listener = Callable[[Params], object]

COMMAND_SECONDS = 10.0

log = structlog.get_logger(__name__)


class CommandFailed(RenderError):
    """Chromium answered a command with an error."""


class _Emitter(EventEmitter):  # type: ignore[misc]
    """Events, with listeners that cannot end the connection that all pages share."""

    def on(self, event: str, listener: Listener) -> Listener:
        """Call ``listener(params)`` at each event; it must not be ``async def`` and must not wait."""
        if inspect.iscoroutinefunction(listener):
            raise TypeError(f"a listener of {event} must be a plain function")
        super().on(event, listener)
        return listener

    def _emit_run(self, f: Listener, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        try:
            f(*args, **kwargs)
        except Exception:
            log.exception("a devtools listener failed", listener=repr(f))

    def _emit_handle_potential_error(self, event: str, error: Any) -> None:
        """An event called "error" that nobody listens to is nothing special."""


class _Pipe(asyncio.Protocol):
    """Chromium's side of ``--remote-debugging-pipe``: JSON texts, each with a zero byte at its end."""

    def __init__(self, devtools: "DevTools") -> None:
        self._devtools = devtools
        self._pieces: list[bytes] = []
        self.lost = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        *ends, rest = data.split(b"\0")
        for end in ends:
            self._pieces.append(end)
            text = b"".join(self._pieces)
            self._pieces.clear()
            self._devtools.hear(text)
        if rest:
            self._pieces.append(rest)

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.set()
        self._devtools.abandon()


class DevTools(_Emitter, Connection):  # type: ignore[misc]
    """The one connection to a browser. Make it with ``await DevTools.over(socket)``."""

    def __init__(self) -> None:
        # pyppeteer's own initialiser would open a WebSocket and start its own loop, so its state is
        # set up by its base class and here.
        super(Connection, self).__init__()
        self._loop = asyncio.get_running_loop()
        self._lastId = 0
        self._callbacks: dict[int, asyncio.Future[Params]] = {}
        self._sessions: dict[str, Session] = {}
        self._connected = True
        self._pipe = _Pipe(self)
        self._transport: asyncio.Transport
        self.closed = asyncio.Event()
        self.heard = 0.0  # when the last message came, on the monotonic clock

    @classmethod
    async def over(cls, connection: socket.socket) -> Self:
        """Speak over a socket whose other end the browser has as its descriptors 3 and 4."""
        devtools = cls()
        try:
            devtools._transport, _ = await devtools._loop.create_unix_connection(
                lambda: devtools._pipe, sock=connection
            )
        except BaseException:
            connection.close()
            raise
        return devtools

    def hear(self, text: bytes) -> None:
        """Take a message of the browser."""
        if not self._connected:
            return
        try:
            self._on_text(text)
        except Exception as error:  # whatever it was, nothing that comes after it can be trusted
            log.warning("devtools connection lost", error=repr(error))
            self._lose()

    def _on_text(self, text: bytes) -> None:
        self.heard = time.monotonic()
        message = json.loads(text)
        if "id" in message:
            self._on_response(message)
            return
        method, params = message["method"], message.get("params", {})
        if method == "Target.attachedToTarget" and params["sessionId"] not in self._sessions:
            self._sessions[params["sessionId"]] = Session(self, params["sessionId"])
        elif method == "Target.detachedFromTarget" and params["sessionId"] in self._sessions:
            self._sessions.pop(params["sessionId"]).crash()
        if "sessionId" not in message:
            self.emit(method, params)
        elif session := self._sessions.get(message["sessionId"]):
            if method == "Inspector.targetCrashed":
                session.crash()
            session.emit(method, params)

    def _on_response(self, message: Params) -> None:
        # Read before the call is taken out: when this raises, the call fails with all the others.
        failure = _failure(message)
        result: Params = {} if failure else dict(message["result"])
        future = self._callbacks.pop(message["id"], None)
        if future is None or future.done():
            return
        if failure:
            future.set_exception(failure)
        else:
            future.set_result(result)

    def send(
        self, method: str, params: Params | None = None, session_id: str | None = None
    ) -> asyncio.Future[Params]:
        """Send a command; the future fails with BrowserGone when the connection is lost."""
        future: asyncio.Future[Params] = self._loop.create_future()
        if not self._connected:
            _fail([future], f"{method}: the connection is closed")
            return future
        self._lastId += 1
        number = self._lastId
        message: Params = {"id": number, "method": method, "params": params or {}}
        if session_id is not None:
            message["sessionId"] = session_id
        self._callbacks[number] = future
        # Nobody waits for it any more: an answer that never comes must not keep its place.
        future.add_done_callback(lambda _: self._callbacks.pop(number, None))
        self._transport.write(json.dumps(message).encode() + b"\0")
        return future

    async def call(self, method: str, timeout: float = COMMAND_SECONDS, /, **params: Any) -> Params:
        """Send a command to the browser and wait for its answer, at most ``timeout`` seconds."""
        return await _answer(self.send(method, params), method, timeout)

    async def attach(self, target_id: str) -> "Session":
        """Open a flat session to a target."""
        answer = await self.call("Target.attachToTarget", targetId=target_id, flatten=True)
        session = self._sessions.get(answer["sessionId"])
        if session is None:
            raise BrowserGone("the target was gone before it could be used")
        return session

    def _lose(self) -> None:
        self._connected = False
        if self.closed.is_set():
            return
        self.closed.set()
        self._transport.abort()
        for session in self._sessions.values():
            session.crash()
        self._sessions.clear()
        _fail(self._callbacks.values(), "the browser is gone")
        self._callbacks.clear()

    def abandon(self) -> None:
        """Declare the browser lost: ``closed`` is set and waiting calls fail with BrowserGone."""
        self._lose()

    async def close(self) -> None:
        """Close the connection; waiting calls fail with BrowserGone. Safe to call twice."""
        self._lose()
        await self._pipe.lost.wait()


class Session(_Emitter, CDPSession):  # type: ignore[misc]
    """A flat session to one page. Make it with ``DevTools.attach``."""

    def __init__(self, devtools: DevTools, session_id: str) -> None:
        super().__init__(devtools, "page", session_id, devtools._loop)
        self._devtools = devtools
        self._waiting: set[asyncio.Future[Any]] = set()
        self.ended = asyncio.Event()

    @property
    def gone(self) -> bool:
        """Whether the page is."""
        return self.ended.is_set()

    def send(self, method: str, params: Params | None = None) -> asyncio.Future[Params]:
        """Send a command to the page."""
        if self.gone:
            return self.future(method)
        future = self._devtools.send(method, params, self._sessionId)
        self._track(future, method)
        return future

    async def call(self, method: str, timeout: float = COMMAND_SECONDS, /, **params: Any) -> Params:
        """Send a command to the page and wait for its answer, at most ``timeout`` seconds."""
        return await _answer(self.send(method, params), method, timeout)

    async def evaluate(self, expression: str, timeout: float = COMMAND_SECONDS, **more: Any) -> Any:
        """The value of a JavaScript expression. Raises CommandFailed when it throws."""
        answer = await self.call(
            "Runtime.evaluate", timeout, expression=expression, returnByValue=True, **more
        )
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise CommandFailed(details.get("exception", {}).get("description", details["text"]))
        return answer["result"].get("value")

    def expect(self, event: str) -> asyncio.Future[Params]:
        """A future of the next such event; listen first, then cause it."""
        future = self.future(event)

        def arrived(params: Params) -> None:
            if not future.done():
                future.set_result(params)

        self.on(event, arrived)
        future.add_done_callback(lambda _: self.remove_listener(event, arrived))
        return future

    def future(self, what: str) -> asyncio.Future[Any]:
        """A future for the caller to set, which fails with BrowserGone when the page is gone."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self._track(future, what)
        return future

    def crash(self) -> None:
        """The page's process died, or the session ended. Nothing that waits will be answered."""
        self.ended.set()
        _fail(list(self._waiting), "the page is gone")

    def _track(self, future: asyncio.Future[Any], what: str) -> None:
        if self.gone:
            _fail([future], f"{what}: the page is gone")
        self._waiting.add(future)
        future.add_done_callback(self._waiting.discard)


async def _answer(future: asyncio.Future[Params], method: str, timeout: float) -> Params:
    try:
        async with asyncio.timeout(timeout):
            return await future
    except TimeoutError:
        raise BrowserGone(f"{method}: no answer in {timeout:g} s") from None
    except CommandFailed as error:
        raise CommandFailed(f"{method}: {error}") from None


def _failure(message: Params) -> CommandFailed | None:
    if "error" not in message:
        return None
    error = message["error"]
    return CommandFailed(f"{error['message']} {error.get('data', '')}".rstrip())


def _fail(futures: Iterable[asyncio.Future[Any]], reason: str) -> None:
    for future in futures:
        if not future.done():
            future.set_exception(BrowserGone(reason))
            future.exception()  # marked as seen: its caller may have stopped waiting
