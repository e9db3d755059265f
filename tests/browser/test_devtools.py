"""devtools.py works around faults of pyppeteer: one test for each, against a fake DevTools server."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from prerender.browser.devtools import CommandFailed, DevTools, Session
from prerender.errors import BrowserGone
from tests.support.fake_devtools import FakeDevTools

LIMIT_SECONDS = 10.0


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[FakeDevTools, DevTools]]:
    """A fake and a connection to it. At the end, no task of either may be left."""
    before = asyncio.all_tasks()
    async with FakeDevTools.open() as fake:
        devtools = await DevTools.over(fake.socket)
        try:
            yield fake, devtools
        finally:
            await devtools.close()
    await nothing_left(before)


async def nothing_left(before: set[asyncio.Task[Any]]) -> None:
    """Wait until all tasks have ended, which takes a few iterations of the loop."""
    async with asyncio.timeout(LIMIT_SECONDS):
        while left := asyncio.all_tasks() - before:
            await asyncio.wait(left)


async def attached(fake: FakeDevTools, devtools: DevTools, name: str = "1") -> Session:
    """A session to a page of the fake."""
    attaching = asyncio.create_task(devtools.attach(f"target {name}"))
    command = await fake.command("Target.attachToTarget")
    assert command["params"] == {"targetId": f"target {name}", "flatten": True}
    await fake.event("Target.attachedToTarget", sessionId=f"session {name}", targetInfo={})
    await fake.answer(command, sessionId=f"session {name}")
    return await attaching


async def assert_works(fake: FakeDevTools, devtools: DevTools) -> None:
    """The connection still carries a command and its response."""
    call = devtools.call("Works", LIMIT_SECONDS)
    command = await fake.command("Works")
    await fake.answer(command, number=command["id"])
    assert await call == {"number": command["id"]}
    assert not devtools.closed.is_set()


async def assert_closed(devtools: DevTools, *calls: Awaitable[Any]) -> None:
    """The connection is closed: pending and new commands fail."""
    async with asyncio.timeout(LIMIT_SECONDS):
        await devtools.closed.wait()
        for call in calls:
            with pytest.raises(BrowserGone):
                await call
        with pytest.raises(BrowserGone):
            await devtools.call("TooLate")


async def test_a_call_has_its_own_answer() -> None:
    async with connected() as (fake, devtools):
        calls = [devtools.call("Get", number=number) for number in range(3)]
        commands = [await fake.command("Get") for _ in calls]
        for command in reversed(commands):
            await fake.answer(command, number=command["params"]["number"])
        assert [await call for call in calls] == [{"number": 0}, {"number": 1}, {"number": 2}]


async def test_an_error_names_the_command() -> None:
    async with connected() as (fake, devtools):
        call = devtools.call("Page.navigate")
        await fake.refuse(await fake.command(), "no such page")
        with pytest.raises(
            CommandFailed, match=r"^Protocol error \(Page\.navigate\): no such page$"
        ):
            await call
        await assert_works(fake, devtools)


async def test_a_cancelled_call_is_answered_late() -> None:
    async with connected() as (fake, devtools):
        call = devtools.call("Slow")
        command = await fake.command("Slow")
        call.cancel()
        await asyncio.wait([call])
        await fake.answer(command)
        await assert_works(fake, devtools)


async def test_a_call_is_cancelled_while_its_answer_arrives() -> None:
    async with connected() as (fake, devtools):
        future = devtools.send("Slow")
        command = await fake.command("Slow")
        # Cancelled by the event before the response in the same read.
        devtools.on("Now", lambda _: future.cancel())
        await fake.event("Now")
        await fake.answer(command)
        await assert_works(fake, devtools)


async def test_a_call_that_timed_out_is_answered_late() -> None:
    async with connected() as (fake, devtools):
        with pytest.raises(BrowserGone, match=r"^Slow: no answer in 0\.01 s$"):
            await devtools.call("Slow", 0.01)
        await fake.answer(await fake.command("Slow"))
        await assert_works(fake, devtools)


async def test_calls_that_are_never_answered_take_no_place() -> None:
    async with connected() as (fake, devtools):
        session = await attached(fake, devtools)
        for client in (devtools, session, session):
            with pytest.raises(BrowserGone):
                await client.call("Never", 0.001)
            await fake.command("Never")
        await assert_works(fake, devtools)
        for client in (devtools, session):
            assert not client._callbacks
            assert not client._waiting


async def test_answers_that_nobody_asked_for() -> None:
    async with connected() as (fake, devtools):
        call = devtools.call("Once")
        command = await fake.command("Once")
        await fake.answer({"id": 4711}, unknown=True)
        await fake.refuse({"id": -1}, "unknown")
        await fake.answer(command, number=1)
        await fake.answer(command, number=2)
        await fake.refuse(command, "thrice")
        assert await call == {"number": 1}
        await assert_works(fake, devtools)


async def test_a_listener_that_raises_harms_nobody() -> None:
    async with connected() as (fake, devtools):
        session = await attached(fake, devtools)
        heard: list[int] = []

        def fail(_: dict[str, Any]) -> None:
            raise RuntimeError("in a listener")

        for emitter in (devtools, session):
            emitter.on("Told", fail)
            emitter.on("Told", lambda params: heard.append(params["number"]))
        await fake.event("Told", number=1)
        await fake.event("Told", "session 1", number=2)
        await assert_works(fake, devtools)
        assert heard == [1, 2]


async def test_async_listeners_are_refused() -> None:
    async def listener(_: dict[str, Any]) -> None: ...

    async with connected() as (fake, devtools):
        session = await attached(fake, devtools)
        for emitter in (devtools, session):
            for add in (emitter.on, emitter.add_listener):
                with pytest.raises(TypeError, match="Told must be a plain function"):
                    add("Told", listener)


async def test_an_error_event_that_nobody_listens_to() -> None:
    async with connected() as (fake, devtools):
        await fake.event("error")
        await assert_works(fake, devtools)


async def test_events_of_an_unknown_session_are_not_the_browsers() -> None:
    async with connected() as (fake, devtools):
        heard: list[Any] = []
        devtools.on("Told", heard.append)
        await fake.event("Told", "session unknown")
        await fake.event("Inspector.targetCrashed", "session unknown")
        await fake.event("Target.detachedFromTarget", sessionId="session unknown")
        await assert_works(fake, devtools)
        assert heard == []


async def test_text_that_looks_like_the_end_of_a_pages_message() -> None:
    async with connected() as (fake, devtools):
        session = await attached(fake, devtools)
        ends = (
            '"sessionId":"session 1"}',
            '", "sessionId": "session 1"}',
            '\\"sessionId":"session 1"}',
        )
        for end in ends:
            told, page_told = devtools.future("Told"), session.expect("Told")
            devtools.on("Told", told.set_result)
            await fake.event("Told", text=end)
            assert await told == {"text": end}
            assert not page_told.done()
            devtools.remove_listener("Told", told.set_result)
            await fake.event("Told", "session 1", text=end)
            assert await page_told == {"text": end}


async def test_empty_messages_mean_nothing() -> None:
    async with connected() as (fake, devtools):
        await fake.text("")
        await assert_works(fake, devtools)


GARBAGE = {
    "no JSON": "Hello!",
    "half of it": '{"id": 1, "resu',
    "a number": "7",
    "null": "null",
    "a list": "[]",
    "text": '"id"',
    "no method": "{}",
    "params that are none": '{"method": "Target.detachedFromTarget", "params": null}',
    "a session that is none": '{"method": "Told", "sessionId": []}',
    "an id that is none": '{"id": [], "result": {}}',
    "an answer without a result": '{"id": 1}',
    "a result that is none": '{"id": 1, "result": 7}',
    "an error that is none": '{"id": 1, "error": "bad"}',
    "a depth without end": "[" * 100_000,
}


@pytest.mark.parametrize("text", GARBAGE.values(), ids=GARBAGE)
async def test_garbage_closes_the_connection(text: str) -> None:
    async with connected() as (fake, devtools):
        session = await attached(fake, devtools)
        await assert_works(fake, devtools)
        devtools._lastId = 0  # so that the garbage can be an answer to this call
        call = devtools.call("Get")
        event = session.expect("Never")
        assert (await fake.command("Get"))["id"] == 1
        await fake.text(text)
        await assert_closed(devtools, call, event, session.call("Page.reload"))


async def test_messages_come_in_pieces() -> None:
    async with connected() as (fake, devtools):
        call = devtools.call("Get")
        heard: asyncio.Queue[Any] = asyncio.Queue()
        devtools.on("Told", heard.put_nowait)
        answer = json.dumps({"id": (await fake.command("Get"))["id"], "result": {"text": "ä" * 10}})
        event = json.dumps({"method": "Told", "params": {"number": 1}})
        content = f"{event}\0{answer}\0{event}\0".encode()
        for at in range(0, len(content), 3):
            await fake.bytes(content[at : at + 3])
            await asyncio.sleep(0)
        assert await call == {"text": "ä" * 10}
        assert [await heard.get() for _ in range(2)] == [{"number": 1}] * 2


async def test_half_a_message_and_the_end() -> None:
    async with connected() as (fake, devtools):
        call = devtools.call("Get")
        await fake.command("Get")
        await fake.bytes(b'{"id": 1, "resu')
        fake.hang_up()
        await assert_closed(devtools, call)


ENDS: dict[str, Callable[[FakeDevTools], None]] = {
    "hung up": FakeDevTools.hang_up,
    "reset": FakeDevTools.reset,
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
async def test_the_server_ends_the_connection(end: Callable[[FakeDevTools], None]) -> None:
    async with connected() as (fake, devtools):
        session = await attached(fake, devtools)
        calls = [it.call("Get") for it in (devtools, session)]
        event = session.expect("Never")
        for _ in calls:
            await fake.command("Get")
        end(fake)
        await assert_closed(devtools, *calls, event, session.call("Page.reload"))
        assert session.gone


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
async def test_commands_just_before_the_end_is_noticed(end: Callable[[FakeDevTools], None]) -> None:
    async with connected() as (fake, devtools):
        session = await attached(fake, devtools)
        end(fake)
        calls = []
        # Whichever of them finds the connection closed first.
        while not devtools.closed.is_set():
            calls += [asyncio.ensure_future(it.send("Get")) for it in (devtools, session)]
            await asyncio.sleep(0)
        devtools.pipe.write("too late")
        await assert_closed(devtools, *calls, session.call("Get"))


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
async def test_a_dead_connection_costs_no_time(end: Callable[[FakeDevTools], None]) -> None:
    async with connected() as (fake, devtools):
        await assert_works(fake, devtools)
        end(fake)
        await assert_closed(devtools)
        started = time.process_time()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await asyncio.Event().wait()
        assert time.process_time() - started < 0.1


async def test_a_deaf_server() -> None:
    """The kernel accepts the first commands, then writing blocks. No call exceeds its timeout."""
    async with connected() as (fake, devtools):
        await assert_works(fake, devtools)
        fake.stop_reading()
        started = time.monotonic()
        calls = [devtools.call("Big", 0.2, text="x" * 1_000_000) for _ in range(30)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(answer) for answer in answers} == {BrowserGone}
        assert time.monotonic() - started < LIMIT_SECONDS
        # A deaf connection is not a lost one until somebody says so.
        waiting = devtools.call("Small")
        await asyncio.sleep(0)
        devtools.abandon()
        await assert_closed(devtools, waiting)


async def test_close() -> None:
    async with connected() as (fake, devtools):
        call = devtools.call("Get")
        await fake.command("Get")
        unsent = devtools.send("Never")
        await asyncio.gather(devtools.close(), devtools.close())
        await devtools.close()
        await assert_closed(devtools, call, unsent)


async def test_one_page_crashes() -> None:
    async with connected() as (fake, devtools):
        crashed = await attached(fake, devtools, "1")
        healthy = await attached(fake, devtools, "2")
        calls = [it.call("Get") for it in (crashed, healthy, devtools)]
        commands = [await fake.command("Get") for _ in calls]
        assert [command.get("sessionId") for command in commands] == [
            "session 1",
            "session 2",
            None,
        ]
        event = crashed.expect("Never")
        started = time.monotonic()
        await fake.event("Inspector.targetCrashed", "session 1")
        for waiting in (calls[0], event):
            with pytest.raises(BrowserGone):
                await waiting
        for late in (crashed.call("Get"), crashed.expect("Never")):
            with pytest.raises(BrowserGone):
                await late
        assert time.monotonic() - started < LIMIT_SECONDS
        assert crashed.gone
        assert not healthy.gone
        for command in commands:
            await fake.answer(command, done=True)
        assert await calls[1] == await calls[2] == {"done": True}
        await assert_works(fake, devtools)


async def test_a_page_goes_away() -> None:
    async with connected() as (fake, devtools):
        session = await attached(fake, devtools)
        event = session.expect("Never")
        await fake.event("Target.detachedFromTarget", sessionId="session 1")
        with pytest.raises(BrowserGone):
            await event
        assert session.gone
        await assert_works(fake, devtools)
        assert not devtools._sessions


async def test_a_page_crashes_before_anybody_listens() -> None:
    async with connected() as (fake, devtools):
        attaching = asyncio.create_task(devtools.attach("target 1"))
        command = await fake.command("Target.attachToTarget")
        await fake.event("Target.attachedToTarget", sessionId="session 1", targetInfo={})
        await fake.answer(command, sessionId="session 1")
        await fake.event("Inspector.targetCrashed", "session 1")
        session = await attaching
        async with asyncio.timeout(LIMIT_SECONDS):
            while not session.gone:
                await asyncio.sleep(0)
            with pytest.raises(BrowserGone):
                await session.call("Page.enable")
        await assert_works(fake, devtools)


async def test_a_page_goes_away_before_it_is_attached() -> None:
    async with connected() as (fake, devtools):
        attaching = asyncio.create_task(devtools.attach("target 1"))
        command = await fake.command("Target.attachToTarget")
        await fake.event("Target.attachedToTarget", sessionId="session 1", targetInfo={})
        await fake.event("Target.detachedFromTarget", sessionId="session 1")
        await fake.answer(command, sessionId="session 1")
        with pytest.raises(BrowserGone):
            await attaching
        await assert_works(fake, devtools)


async def test_expected_events() -> None:
    async with connected() as (fake, devtools):
        session = await attached(fake, devtools)
        first, given_up = session.expect("Told"), session.expect("Told")
        given_up.cancel()
        await fake.event("Told", "session 1", number=1)
        await fake.event("Told", "session 1", number=2)
        assert await first == {"number": 1}
        await assert_works(fake, devtools)
        assert "Told" not in session.event_names()


async def test_values_and_exceptions_of_the_page() -> None:
    async with connected() as (fake, devtools):
        session = await attached(fake, devtools)
        for answer, expected in (
            ({"result": {"type": "number", "value": 4}}, 4),
            ({"result": {"type": "undefined"}}, None),
            ({"result": {}, "exceptionDetails": {"text": "Uncaught"}}, "Uncaught"),
            (
                {
                    "result": {},
                    "exceptionDetails": {
                        "text": "Uncaught",
                        "exception": {"description": "Error: no"},
                    },
                },
                "Error: no",
            ),
        ):
            call = asyncio.create_task(session.evaluate("2 + 2"))
            command = await fake.command("Runtime.evaluate")
            assert command["params"] == {"expression": "2 + 2", "returnByValue": True}
            await fake.answer(command, **answer)
            if "exceptionDetails" in answer:
                with pytest.raises(CommandFailed, match=str(expected)):
                    await call
            else:
                assert await call == expected


# What the fake does with one command, and what the test does with the call that sent it.
_FATES = st.sampled_from(["answer", "twice", "drop", "refuse", "corrupt", "crash", "reset"])
_CALLERS = st.sampled_from(["wait", "cancel at once", "cancel when sent", "cancel when answered"])
_STEPS = st.lists(st.tuples(_CALLERS, _FATES, st.booleans()), min_size=1, max_size=12)
_CORRUPTIONS = st.sampled_from([*GARBAGE.values()])


@given(steps=_STEPS, corruption=_CORRUPTIONS)
def test_whatever_happens_nothing_hangs(
    steps: list[tuple[str, str, bool]], corruption: str
) -> None:
    """After any sequence of cancelled calls and broken responses, the connection works or is closed."""

    async def run() -> None:
        async with asyncio.timeout(LIMIT_SECONDS), connected() as (fake, devtools):
            session = await attached(fake, devtools)
            calls = [
                await _step(fake, session if on_page else devtools, caller, fate, corruption)
                for caller, fate, on_page in steps
            ]
            # Nothing waits for dropped commands. All other calls must end by themselves.
            dropped = [
                call for call, (_, fate, _) in zip(calls, steps, strict=True) if fate == "drop"
            ]
            for call in dropped:
                call.cancel()
            for outcome in await asyncio.gather(*calls, return_exceptions=True):
                expected = (dict, BrowserGone, CommandFailed, asyncio.CancelledError)
                assert isinstance(outcome, expected)
            last = await _step(fake, devtools, "wait", "answer", "")
            outcomes = await asyncio.gather(last, return_exceptions=True)
            assert {} in outcomes or devtools.closed.is_set()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


async def _step(
    fake: FakeDevTools, sender: DevTools | Session, caller: str, fate: str, corruption: str
) -> asyncio.Future[Any]:
    """One call and its outcome. Calls on a closed connection or page do not reach the fake."""
    tag = time.monotonic_ns()
    call = sender.call("Step", 10.0, tag=tag)
    if caller == "cancel at once":
        call.cancel()
        return call
    await asyncio.sleep(0)
    if call.done():
        return call
    arriving = asyncio.create_task(_tagged(fake, tag))
    await asyncio.wait([arriving, call], return_when=asyncio.FIRST_COMPLETED)
    if not arriving.done():
        arriving.cancel()
        return call
    command = arriving.result()
    if caller == "cancel when sent":
        call.cancel()
    with suppress(ConnectionError):  # the client has closed in the meantime
        await _meet(fake, command, fate, corruption)
    if caller == "cancel when answered":
        call.cancel()
    return call


async def _tagged(fake: FakeDevTools, tag: int) -> dict[str, Any]:
    """The command with this tag. Earlier ones were cancelled before they were sent."""
    while (command := await fake.command("Step"))["params"]["tag"] != tag:
        pass
    return command


async def _meet(fake: FakeDevTools, command: dict[str, Any], fate: str, corruption: str) -> None:
    match fate:
        case "answer" | "twice":
            for _ in range(1 if fate == "answer" else 2):
                await fake.answer(command)
        case "refuse":
            await fake.refuse(command, "no")
        case "corrupt":
            await fake.text(corruption)
        case "crash":
            await fake.event("Inspector.targetCrashed", "session 1")
            if "sessionId" not in command:
                await fake.answer(command)
        case "reset":
            fake.reset()
