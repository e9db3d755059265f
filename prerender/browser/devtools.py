"""The DevTools protocol, with pyppeteer's connection and sessions. Only this module imports pyppeteer.

pyppeteer numbers commands, matches responses, keeps sessions and calls listeners. It is unmaintained,
so its faults are corrected here, each with a test against a fake DevTools server:

- It opens a WebSocket to a port that anybody on the machine can use, even a page of the site. Here it
  uses a pipe that only the browser has (``devtools_pipe.py``).
- A caller that stops waiting cancels pyppeteer's future; the response to it then ends the receive
  loop, and all later messages are lost. Here callers get their own future.
- Its calls have no timeout. Here each has one.
- A listener that raises ends the receive loop, and an ``async def`` listener never runs. Here the
  first is logged, and the second raises TypeError. An event named "error" needs no listener.
- It sends a page's commands as JSON inside JSON, by a deprecated command, and learns of a session
  after its first events. Here sessions are *flat* (``Target.attachToTarget`` with ``flatten``): a
  snapshot is parsed once, and a session exists from the event that announces it, so no crash is
  missed.
- On a dead connection it polls at full speed. Here every loss of the connection, and every invalid
  message, sets ``closed``, and all waiting calls fail with BrowserGone.

A render of 42 messages, one of them a snapshot of 90 kB, takes 0.8 ms of CPU time here; without
pyppeteer it took 0.6, and with pyppeteer's own sessions 0.95.
"""

import asyncio
import inspect
import json
import re
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Self

import structlog
from pyppeteer.connection import CDPSession, Connection, EventEmitter

from prerender.browser.devtools_pipe import Pipe
from prerender.errors import BrowserGone, RenderError

Params = dict[str, Any]
EventListener = Callable[[Params], object]

COMMAND_SECONDS = 10.0
# pyppeteer prepares a WebSocket to this URL, but never opens it.
_NO_URL = "ws://pipe"
# The end of a page's message. A match elsewhere is impossible: quotes in strings follow a backslash.
_SESSION_ID = re.compile(r'"sessionId": ?"([^"]+)"\}\Z')
_LONGEST_SESSION_ID = 100
# The beginning of an event.
_EVENT = re.compile(r'\{"method": ?"([^"\\]+)"')

log = structlog.get_logger(__name__)


class CommandFailed(RenderError):
    """Chromium answered a command with an error."""


class _CommandChannel(EventEmitter):  # type: ignore[misc]
    """Base of the browser and its pages: events, and commands that always complete."""

    # The error for all calls after the end of the connection or session.
    _lost = ""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._waiting: set[asyncio.Future[Any]] = set()

    def send(self, method: str, params: Params | None = None) -> asyncio.Future[Params]:
        """Send a command. The future fails with CommandFailed or, at the end, with BrowserGone."""
        future = self.future(method)
        if not future.done():
            reply = super().send(method, params or {})
            reply.error = CommandFailed()  # pyppeteer sets the text
            reply.add_done_callback(partial(_pass_on, future))
            # Forget a response that nobody waits for: it may never come.
            future.add_done_callback(partial(_forget, self._callbacks, self._lastId))
        return future

    def call(
        self, method: str, timeout: float = COMMAND_SECONDS, /, **params: Any
    ) -> asyncio.Future[Params]:
        """Send a command, at once. Its response may take up to ``timeout`` seconds."""
        future = self.send(method, params)
        expired = self._loop.call_later(
            timeout, _fail, future, f"{method}: no answer in {timeout:g} s"
        )
        future.add_done_callback(lambda _: expired.cancel())
        return future

    def future(self, what: str) -> asyncio.Future[Any]:
        """A future that the caller completes. It fails with BrowserGone at the connection's end."""
        future: asyncio.Future[Any] = self._loop.create_future()
        if self._lost:
            _fail(future, f"{what}: {self._lost}")
        else:
            self._waiting.add(future)
            future.add_done_callback(self._waiting.discard)
        return future

    def _lose(self, reason: str) -> None:
        self._lost = reason
        for future in list(self._waiting):
            _fail(future, reason)

    def add_listener(self, event: str, f: EventListener) -> EventListener:
        """Call ``f(params)`` for each event. It must not be ``async def`` and must not block."""
        if inspect.iscoroutinefunction(f):
            raise TypeError(f"a listener of {event} must be a plain function")
        super().add_listener(event, f)
        return f

    def _emit_run(self, f: EventListener, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        try:
            f(*args, **kwargs)
        except Exception:
            log.exception("devtools_listener_failed", listener=repr(f))

    def _emit_handle_potential_error(self, event: str, error: Any) -> None:
        """Do nothing: pyee raises if an event named "error" has no listener."""


class DevTools(_CommandChannel, Connection):  # type: ignore[misc]
    """The connection to a browser. Create it with ``await DevTools.over(socket)``."""

    def __init__(self, pipe: Pipe) -> None:
        super().__init__(_NO_URL, asyncio.get_running_loop())
        self._ws = self.pipe = pipe  # before pyppeteer's receive loop begins
        self._connected = True
        self.closed = asyncio.Event()
        self.drawing = asyncio.Lock()  # one frame at a time (frame_drawing.py)
        self.last_message = 0.0  # when the last message arrived, on the monotonic clock

    @classmethod
    async def over(cls, connection: socket.socket) -> Self:
        """Connect through a socket whose other end is the browser's descriptors 3 and 4."""
        return cls(await Pipe.over(connection))

    async def attach(self, target_id: str) -> "Session":
        """Open a flat session to a target."""
        reply = await self.call("Target.attachToTarget", targetId=target_id, flatten=True)
        session: Session | None = self._sessions.get(reply["sessionId"])
        if session is None:
            raise BrowserGone("the target was gone before it could be used")
        return session

    def abandon(self) -> None:
        """Give the browser up: set ``closed``, and let waiting calls fail with BrowserGone."""
        if self.closed.is_set():
            return
        self.closed.set()
        self.pipe.abort()
        self._lose("the browser is gone")
        for session in self._sessions.values():
            session.crash()

    async def close(self) -> None:
        """Close the connection; waiting calls fail with BrowserGone. Safe to call twice."""
        self.abandon()
        await self.dispose()

    async def _on_close(self) -> None:
        self.abandon()
        await super()._on_close()

    async def _async_send(self, msg: str, callback_id: int) -> None:
        if not self.closed.is_set():  # pyppeteer polls until it is connected
            await super()._async_send(msg, callback_id)

    async def _on_message(self, message: str) -> None:
        self.last_message = time.monotonic()
        try:
            if flat := _SESSION_ID.search(message, max(0, len(message) - _LONGEST_SESSION_ID)):
                if session := self._sessions.get(flat[1]):
                    event = _EVENT.match(message)
                    # Most events of a page have no listener, and need not be parsed.
                    if event is None or session.listeners(event[1]):
                        session._on_message(message)
            else:
                await super()._on_message(message)
        except Exception as error:  # no later message can be trusted
            log.warning("devtools_connection_lost", error=f"not a DevTools message: {error}")
            self.abandon()

    def _on_response(self, msg: Params) -> None:
        _check_reply(msg)  # before pyppeteer removes the waiting call
        super()._on_response(msg)

    def _on_query(self, msg: Params) -> None:
        if "id" in msg:  # a response that nobody waits for
            _check_reply(msg)
            return
        if "sessionId" in msg:
            raise ValueError("the session of a message is not at its end")
        if msg["method"] == "Target.attachedToTarget":
            session_id = msg["params"]["sessionId"]
            self._sessions.setdefault(session_id, Session(self, session_id))
        super()._on_query(msg)


class Session(_CommandChannel, CDPSession):  # type: ignore[misc]
    """A flat session with a page. Create it with ``DevTools.attach``. ``ended``: the page is gone."""

    def __init__(self, devtools: DevTools, session_id: str) -> None:
        super().__init__(_Flat(devtools.pipe), "page", session_id, devtools._loop)
        self.ended = asyncio.Event()
        self.on("Inspector.targetCrashed", lambda _: self.crash())

    @property
    def gone(self) -> bool:
        """Whether the page is gone."""
        return self.ended.is_set()

    async def evaluate(self, expression: str, timeout: float = COMMAND_SECONDS, **more: Any) -> Any:
        """Evaluate a JavaScript expression. Raises CommandFailed if it throws."""
        reply = await self.call(
            "Runtime.evaluate", timeout, expression=expression, returnByValue=True, **more
        )
        if "exceptionDetails" in reply:
            details = reply["exceptionDetails"]
            raise CommandFailed(details.get("exception", {}).get("description", details["text"]))
        return reply["result"].get("value")

    def expect(self, event: str) -> asyncio.Future[Params]:
        """A future of the next event of this kind. Call this before causing the event."""
        future = self.future(event)

        def arrived(params: Params) -> None:
            if not future.done():
                future.set_result(params)

        self.on(event, arrived)
        future.add_done_callback(lambda _: self.remove_listener(event, arrived))
        return future

    def crash(self) -> None:
        """Handle the end of the page's process or session: waiting calls fail."""
        self.ended.set()
        self._lose("the page is gone")

    def _on_closed(self) -> None:
        self.crash()
        super()._on_closed()


class _Flat:
    """The connection as pyppeteer's session sees it. Adds the session's id to each command."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe

    def send(self, _: str, wrapped: Params) -> None:
        """Send a command that pyppeteer has wrapped for ``Target.sendMessageToTarget``."""
        session_id = json.dumps(wrapped["sessionId"])
        self._pipe.write(f'{wrapped["message"][:-1]}, "sessionId": {session_id}}}')


def ignore_failure(future: asyncio.Future[Any]) -> None:
    """Do not report a failure of this future: nobody waits for it any more."""
    future.add_done_callback(lambda done: done.cancelled() or done.exception())


def _check_reply(message: Params) -> None:
    """Raises KeyError, TypeError or ValueError if a message is neither a result nor an error."""
    if "error" in message:
        str(message["error"]["message"])
    else:
        dict(message["result"])


def _pass_on(future: asyncio.Future[Params], reply: asyncio.Future[Params]) -> None:
    error = reply.exception()
    if future.done():
        return
    if error is None:
        future.set_result(reply.result())
    else:
        future.set_exception(error)


def _forget(callbacks: dict[int, asyncio.Future[Params]], number: int, _: object) -> None:
    callbacks.pop(number, None)


def _fail(future: asyncio.Future[Any], reason: str) -> None:
    if not future.done():
        future.set_exception(BrowserGone(reason))
        future.exception()  # mark it as retrieved: its caller may have stopped waiting
