"""The DevTools protocol over pyppeteer's connection. Only this module imports pyppeteer.

pyppeteer 2.0.0 drives today's Chromium but is not maintained; what a server must not inherit is
mended here, and each mend has a test against a fake DevTools server:

- A caller that stops waiting cancels its future; pyppeteer's receive loop then dies of
  InvalidStateError and the browser goes deaf. Here an answer that nobody waits for is dropped.
- A listener that raises, or an ``async def`` listener, kills the loop or never runs. Here the first
  is logged and the second refused.
- On a dead socket pyppeteer polls at full speed or never tells. Here every loss of the connection,
  garbage included, ends in ``closed``, and every waiting call fails with BrowserGone.
- pyppeteer wraps each message of a page in a message of the browser, JSON inside JSON. Here sessions
  are flat (``Target.attachToTarget`` with ``flatten``), so a snapshot is parsed once.
- pyppeteer's calls have no deadline. Here each has one.
"""

import asyncio
import inspect
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

import structlog
from pyppeteer.connection import CDPSession, Connection
from websockets.exceptions import WebSocketException
from websockets.legacy.client import connect

from prerender.errors import BrowserGone, RenderError

Params = dict[str, Any]
Listener = Callable[[Params], None]

COMMAND_SECONDS = 10.0

log = structlog.get_logger(__name__)


class CommandFailed(RenderError):
    """Chromium answered a command with an error."""


class DevTools(Connection):  # type: ignore[misc]
    """The one WebSocket to a browser. Make it with ``await DevTools.connect(url)``."""

    def __init__(self, url: str) -> None:
        # pyppeteer's own initialiser would open its own socket and start its own loop, so its state
        # is set up by its base class and here.
        super(Connection, self).__init__()
        self._url = url
        self._loop = asyncio.get_running_loop()
        self._lastId = 0
        self._callbacks: dict[int, asyncio.Future[Params]] = {}
        self._sessions: dict[str, Session] = {}
        self._connected = False
        self._recv_fut: asyncio.Task[None] | None = None
        self._sends: set[asyncio.Task[None]] = set()
        self.closed = asyncio.Event()

    @classmethod
    async def connect(cls, url: str, timeout: float = COMMAND_SECONDS) -> Self:
        """Connect to the browser's ``webSocketDebuggerUrl``. Raises BrowserGone."""
        devtools = cls(url)
        try:
            async with asyncio.timeout(timeout):
                devtools.connection = await connect(
                    url, max_size=None, max_queue=None, compression=None, ping_interval=None
                )
        except (OSError, WebSocketException, TimeoutError) as error:
            raise BrowserGone(f"no connection to {url}: {error!r}") from error
        devtools._connected = True
        devtools._recv_fut = asyncio.create_task(devtools._recv_loop(), name="devtools receive")
        return devtools

    async def _recv_loop(self) -> None:
        try:
            async for message in self.connection:
                self._on_text(message)
        except (OSError, WebSocketException, ValueError, KeyError, TypeError) as error:
            log.warning("devtools connection lost", error=repr(error))
        finally:
            self._lose()

    def _on_text(self, text: str | bytes) -> None:
        message = json.loads(text)
        if "id" in message:
            self._on_response(message)
            return
        session = self._sessions.get(message.get("sessionId"))
        emitter = session if session is not None else self
        method, params = message["method"], message.get("params", {})
        if method == "Target.detachedFromTarget":
            if gone := self._sessions.pop(params["sessionId"], None):
                gone._on_closed()
        elif method == "Inspector.targetCrashed" and session is not None:
            session.crash()
        emitter.emit(method, params)

    def _on_response(self, message: Params) -> None:
        future = self._callbacks.pop(message["id"], None)
        if future is None or future.done():
            return
        if "error" in message:
            error = message["error"]
            future.set_exception(CommandFailed(f"{error.get('message')} {error.get('data', '')}"))
        else:
            future.set_result(message["result"])

    def send(
        self, method: str, params: Params | None = None, session_id: str | None = None
    ) -> asyncio.Future[Params]:
        """Send a command; the future fails with BrowserGone when the connection is lost."""
        future: asyncio.Future[Params] = self._loop.create_future()
        if not self._connected:
            future.set_exception(BrowserGone(f"{method}: the connection is closed"))
            return future
        self._lastId += 1
        message: Params = {"id": self._lastId, "method": method, "params": params or {}}
        if session_id is not None:
            message["sessionId"] = session_id
        self._callbacks[self._lastId] = future
        task = asyncio.create_task(self._async_send(json.dumps(message)), name=f"send {method}")
        self._sends.add(task)
        task.add_done_callback(self._sends.discard)
        return future

    async def _async_send(self, text: str) -> None:
        try:
            await self.connection.send(text)
        except (OSError, WebSocketException):
            self._lose()

    async def call(self, method: str, timeout: float = COMMAND_SECONDS, /, **params: Any) -> Params:
        """Send a command to the browser and wait for its answer, at most ``timeout`` seconds."""
        return await _answer(self.send(method, params), method, timeout)

    async def attach(self, target_id: str) -> "Session":
        """Open a flat session to a target."""
        answer = await self.call("Target.attachToTarget", targetId=target_id, flatten=True)
        session = Session(self, answer["sessionId"])
        self._sessions[answer["sessionId"]] = session
        return session

    def emit(self, event: str, *args: Any) -> bool:
        return _emit(super().emit, event, *args)

    def on(self, event: str, listener: Listener) -> Listener:
        """Call ``listener(params)`` at each event; it must not be ``async def`` and must not wait."""
        return _listen(super().on, event, listener)

    def _lose(self) -> None:
        self._connected = False
        if self.closed.is_set():
            return
        self.closed.set()
        for session in self._sessions.values():
            session._on_closed()
        self._sessions.clear()
        _fail_all(self._callbacks, "the browser is gone")

    def abandon(self) -> None:
        """Declare the browser lost: ``closed`` is set and waiting calls fail with BrowserGone."""
        self._lose()

    async def close(self) -> None:
        """Close the connection; waiting calls fail with BrowserGone. Safe to call twice."""
        self._lose()
        self.connection.fail_connection()
        if self._recv_fut is not None:
            self._recv_fut.cancel()
            with suppress(asyncio.CancelledError):
                await self._recv_fut


class Session(CDPSession):  # type: ignore[misc]
    """A flat session to one page. Make it with ``DevTools.attach``."""

    def __init__(self, devtools: DevTools, session_id: str) -> None:
        super().__init__(devtools, "page", session_id, devtools._loop)
        self._devtools = devtools
        self._waiting: set[asyncio.Future[Any]] = set()
        self.gone = False

    def send(self, method: str, params: Params | None = None) -> asyncio.Future[Params]:
        """Send a command to the page."""
        future = self._devtools.send(method, params, self._sessionId)
        if self.gone and not future.done():
            future.set_exception(BrowserGone(f"{method}: the page is gone"))
        self._track(future)
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
        future: asyncio.Future[Params] = self._loop.create_future()

        def arrived(params: Params) -> None:
            if not future.done():
                future.set_result(params)

        self.on(event, arrived)
        future.add_done_callback(lambda _: self.remove_listener(event, arrived))
        if self.gone:
            future.set_exception(BrowserGone(f"{event}: the page is gone"))
        self._track(future)
        return future

    def crash(self) -> None:
        """The page's process died. Nothing that waits for it will be answered."""
        self._on_closed()

    def emit(self, event: str, *args: Any) -> bool:
        return _emit(super().emit, event, *args)

    def on(self, event: str, listener: Listener) -> Listener:
        """Call ``listener(params)`` at each event; it must not be ``async def`` and must not wait."""
        return _listen(super().on, event, listener)

    def _track(self, future: asyncio.Future[Any]) -> None:
        self._waiting.add(future)
        future.add_done_callback(self._waiting.discard)

    def _on_closed(self) -> None:
        self.gone = True
        for future in list(self._waiting):
            if not future.done():
                future.set_exception(BrowserGone("the page is gone"))
                future.exception()  # marked as seen: its caller may have stopped waiting


async def _answer(future: asyncio.Future[Params], method: str, timeout: float) -> Params:
    try:
        async with asyncio.timeout(timeout):
            return await future
    except TimeoutError:
        raise BrowserGone(f"{method}: no answer in {timeout:g} s") from None
    except CommandFailed as error:
        raise CommandFailed(f"{method}: {error}") from None


def _emit(emit: Callable[..., bool], event: str, *args: Any) -> bool:
    try:
        return emit(event, *args)
    except Exception:
        # A fault in one listener must not end the connection that all pages share.
        log.exception("a devtools listener failed", devtools_event=event)
        return True


def _listen(on: Callable[..., Any], event: str, listener: Listener) -> Listener:
    if inspect.iscoroutinefunction(listener):
        raise TypeError(f"a listener of {event} must be a plain function")
    on(event, listener)
    return listener


def _fail_all(callbacks: dict[int, asyncio.Future[Params]], reason: str) -> None:
    for future in callbacks.values():
        if not future.done():
            future.set_exception(BrowserGone(reason))
            future.exception()  # marked as seen: its caller may have stopped waiting
    callbacks.clear()
