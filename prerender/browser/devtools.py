"""The DevTools protocol by pyppeteer's connection and sessions. Only this module imports pyppeteer.

pyppeteer numbers the commands, matches answers to them, keeps the sessions and calls the listeners. It
is not maintained, so its faults are corrected here, each with a test against a fake DevTools server:

- It opens a WebSocket to a port, which anybody on the machine can use: a page of the site's own server,
  too. Here it reads and writes a pipe that only the browser has (``pipe.py``).
- A caller that stops waiting cancels pyppeteer's future; an answer to it then ends the receive loop,
  and the browser goes deaf. Here callers get a future of their own.
- Its calls have no deadline. Here each has one.
- A listener that raises ends the receive loop, and an ``async def`` listener never runs. Here the first
  is logged, and the second refused. An event named "error" needs no listener.
- It sends commands of a page as JSON inside JSON, by a deprecated command, and learns of a session
  after the first events of it. Here sessions are *flat* (``Target.attachToTarget`` with ``flatten``): a
  snapshot is parsed once, and a session exists from the event that announces it, so no crash is missed.
- On a dead connection it polls at full speed. Here every loss of the connection, garbage included, sets
  ``closed``, and everything that waits fails with BrowserGone.

A render of 42 messages, one of them a snapshot of 90 kB, takes 0.8 ms of CPU in here. Without pyppeteer
it took 0.6; pyppeteer's own sessions, JSON inside JSON, take 0.95.
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

from prerender.browser.pipe import Pipe
from prerender.errors import BrowserGone, RenderError

Params = dict[str, Any]
Listener = Callable[[Params], object]

COMMAND_SECONDS = 10.0
# pyppeteer prepares a WebSocket to it, which is never opened.
_NO_URL = "ws://pipe"
# A message of a page ends with this. Nothing inside of it can: there a quote stands behind a backslash.
_SESSION_ID = re.compile(r'"sessionId": ?"([^"]+)"\}\Z')
_LONGEST_SESSION_ID = 100

log = structlog.get_logger(__name__)


class CommandFailed(RenderError):
    """Chromium answered a command with an error."""


class _Client(EventEmitter):  # type: ignore[misc]
    """What the browser and a page have in common: events, and commands that always come to an end."""

    # Why nothing will be answered any more.
    _lost = ""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._waiting: set[asyncio.Future[Any]] = set()

    def send(self, method: str, params: Params | None = None) -> asyncio.Future[Params]:
        """Send a command. The future fails with CommandFailed, or with BrowserGone at the end."""
        future = self.future(method)
        if not future.done():
            answer = super().send(method, params or {})
            answer.error = CommandFailed()  # pyppeteer sets the text
            answer.add_done_callback(partial(_pass_on, future))
            # An answer that nobody waits for, and that may never come, must not keep its place.
            future.add_done_callback(partial(_forget, self._callbacks, self._lastId))
        return future

    async def call(self, method: str, timeout: float = COMMAND_SECONDS, /, **params: Any) -> Params:
        """Send a command and wait for its answer, at most ``timeout`` seconds."""
        try:
            async with asyncio.timeout(timeout):
                return await self.send(method, params)
        except TimeoutError:
            raise BrowserGone(f"{method}: no answer in {timeout:g} s") from None

    def future(self, what: str) -> asyncio.Future[Any]:
        """A future for the caller to set. It fails with BrowserGone when nobody can set it any more."""
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

    def add_listener(self, event: str, f: Listener) -> Listener:
        """Call ``f(params)`` at each event; it must not be ``async def`` and must not wait."""
        if inspect.iscoroutinefunction(f):
            raise TypeError(f"a listener of {event} must be a plain function")
        super().add_listener(event, f)
        return f

    def _emit_run(self, f: Listener, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        try:
            f(*args, **kwargs)
        except Exception:
            log.exception("a devtools listener failed", listener=repr(f))

    def _emit_handle_potential_error(self, event: str, error: Any) -> None:
        """pyee raises when nobody listens to an event named "error"."""


class DevTools(_Client, Connection):  # type: ignore[misc]
    """The one connection to a browser. Make it with ``await DevTools.over(socket)``."""

    def __init__(self, pipe: Pipe) -> None:
        super().__init__(_NO_URL, asyncio.get_running_loop())
        self._ws = self.pipe = pipe  # before pyppeteer's receive loop begins
        self._connected = True
        self.closed = asyncio.Event()
        self.drawing = asyncio.Lock()  # one frame at a time (frames.py)
        self.heard = 0.0  # when the last message came, on the monotonic clock

    @classmethod
    async def over(cls, connection: socket.socket) -> Self:
        """Speak over a socket whose other end the browser has as its descriptors 3 and 4."""
        return cls(await Pipe.over(connection))

    async def attach(self, target_id: str) -> "Session":
        """Open a flat session to a target."""
        answer = await self.call("Target.attachToTarget", targetId=target_id, flatten=True)
        session: Session | None = self._sessions.get(answer["sessionId"])
        if session is None:
            raise BrowserGone("the target was gone before it could be used")
        return session

    def abandon(self) -> None:
        """Declare the browser lost: ``closed`` is set and waiting calls fail with BrowserGone."""
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
        if not self.closed.is_set():  # pyppeteer would poll until it is connected
            await super()._async_send(msg, callback_id)

    async def _on_message(self, message: str) -> None:
        self.heard = time.monotonic()
        try:
            if flat := _SESSION_ID.search(message, max(0, len(message) - _LONGEST_SESSION_ID)):
                if session := self._sessions.get(flat[1]):
                    session._on_message(message)
            else:
                await super()._on_message(message)
        except Exception as error:  # whatever it was, nothing that comes after it can be trusted
            log.warning("devtools connection lost", error=repr(error))
            self.abandon()

    def _on_response(self, msg: Params) -> None:
        _check_answer(msg)  # before pyppeteer forgets who waits for it
        super()._on_response(msg)

    def _on_query(self, msg: Params) -> None:
        if "id" in msg:  # an answer that nobody waits for
            _check_answer(msg)
            return
        if "sessionId" in msg:
            raise ValueError("the session of a message is not at its end")
        if msg["method"] == "Target.attachedToTarget":
            session_id = msg["params"]["sessionId"]
            self._sessions.setdefault(session_id, Session(self, session_id))
        super()._on_query(msg)


class Session(_Client, CDPSession):  # type: ignore[misc]
    """A flat session to one page. Make it with ``DevTools.attach``. ``ended``: the page is gone."""

    def __init__(self, devtools: DevTools, session_id: str) -> None:
        super().__init__(_Flat(devtools.pipe), "page", session_id, devtools._loop)
        self.ended = asyncio.Event()
        self.on("Inspector.targetCrashed", lambda _: self.crash())

    @property
    def gone(self) -> bool:
        """Whether the page is."""
        return self.ended.is_set()

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

    def crash(self) -> None:
        """The page's process died, or the session ended. Nothing that waits will be answered."""
        self.ended.set()
        self._lose("the page is gone")

    def _on_closed(self) -> None:
        self.crash()
        super()._on_closed()


class _Flat:
    """What pyppeteer's session sends its commands through: it adds the id of the session to each."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe

    def send(self, _: str, wrapped: Params) -> None:
        """Send what pyppeteer has wrapped for ``Target.sendMessageToTarget``."""
        session_id = json.dumps(wrapped["sessionId"])
        self._pipe.write(f'{wrapped["message"][:-1]}, "sessionId": {session_id}}}')


def ignore_failure(future: asyncio.Future[Any]) -> None:
    """Nobody waits for this future any more: should it fail, that is not to be reported."""
    future.add_done_callback(lambda done: done.cancelled() or done.exception())


def _check_answer(message: Params) -> None:
    """Raises KeyError, TypeError, ValueError where a message is neither a result nor an error."""
    if "error" in message:
        str(message["error"]["message"])
    else:
        dict(message["result"])


def _pass_on(future: asyncio.Future[Params], answer: asyncio.Future[Params]) -> None:
    error = answer.exception()
    if future.done():
        return
    if error is None:
        future.set_result(answer.result())
    else:
        future.set_exception(error)


def _forget(callbacks: dict[int, asyncio.Future[Params]], number: int, _: object) -> None:
    callbacks.pop(number, None)


def _fail(future: asyncio.Future[Any], reason: str) -> None:
    if not future.done():
        future.set_exception(BrowserGone(reason))
        future.exception()  # marked as seen: its caller may have stopped waiting
