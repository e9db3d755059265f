"""One access log line for each request: its contents, without secrets or injected lines."""

import asyncio
import json
import re
from dataclasses import replace

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from prerender.config.settings import SECRET_PARAMETERS
from prerender.http.trace_context import TraceContext
from prerender.proxy.decision import Reason
from prerender.snapshots.snapshot import CacheResult, Facts, Timings
from prerender.snapshots.target import Target
from prerender.telemetry.access_log import AccessLog, LineFormatter
from prerender.telemetry.records import RequestRecord
from prerender.telemetry.redaction import Redaction
from prerender.urls.ajax_crawling import PrettyURL
from tests.support import raw
from tests.support.renders import PUBLIC

RECORD = RequestRecord(
    time=1_700_000_000.25,
    seconds=0.0123456,
    method="GET",
    target="/a?_escaped_fragment_=b",
    remote="203.0.113.7",
    user_agent="Googlebot/2.1",
    crawler="search",
    kind="render",
    reason=Reason.UGLY_URL,
    source="snapshot",
    cache=CacheResult.MISS,
    detail="",
    status=200,
    sent_bytes=1234,
    error=None,
    snapshot_target=Target.of(PUBLIC, PrettyURL("/a", "b")),
    origin_seconds=None,
    timings=Timings(0.001, 0.002, 0.003, 0.004),
    facts=Facts(),
    trace=TraceContext("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", sampled=True),
)
REDACTION = Redaction(SECRET_PARAMETERS)
JSON, CONSOLE = LineFormatter("json", REDACTION), LineFormatter("console", REDACTION)


def test_signed_requests() -> None:
    """The agent, or why it is not verified."""
    verified = json.loads(JSON(replace(RECORD, agent="agent.example", crawler="signed")))
    assert (verified["agent"], verified["crawler"]) == ("agent.example", "signed")
    assert "agent_unverified" not in verified
    unverified = JSON(replace(RECORD, agent_unverified='it expired "\n'))
    assert json.loads(unverified)["agent_unverified"] == 'it expired "\n'
    assert 'agent_unverified="it expired' in CONSOLE(replace(RECORD, agent_unverified="it expired"))
    assert "agent" not in JSON(RECORD).replace("user_agent", "")


def test_json() -> None:
    assert json.loads(JSON(RECORD)) == {
        "timestamp": "2023-11-14T22:13:20.262345Z",
        "level": "info",
        "event": "request",
        "method": "GET",
        "target": "/a?_escaped_fragment_=b",
        "status": 200,
        "ms": 12.35,
        "bytes": 1234,
        "decision": "render",
        "reason": "ugly_url",
        "source": "snapshot",
        "cache": "miss",
        "remote": "203.0.113.7",
        "user_agent": "Googlebot/2.1",
        "crawler": "search",
        "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
        "queue_ms": 1.0,
        "document_ms": 2.0,
        "settle_ms": 3.0,
        "serialize_ms": 4.0,
    }


def test_console() -> None:
    forwarded = replace(
        RECORD,
        kind="forward",
        source="origin",
        cache=None,
        timings=None,
        origin_seconds=0.5,
        trace=None,
    )
    assert CONSOLE(forwarded) == (
        "2023-11-14T22:13:20.262345Z [info     ] request                        method=GET "
        'target="/a?_escaped_fragment_=b" status=200 ms=12.35 bytes=1234 decision="forward" '
        'reason="ugly_url" source="origin" remote="203.0.113.7" user_agent="Googlebot/2.1" '
        'crawler="search" origin_ms=500.00\n'
    )


def test_colours_are_those_of_other_lines() -> None:
    """structlog's console renderer writes the same fields in the same way."""
    coloured = LineFormatter("console", REDACTION, coloured=True)
    assert re.sub(r"\x1b\[\d+m", "", coloured(RECORD)) == CONSOLE(RECORD)
    line = structlog.dev.ConsoleRenderer(colors=True, sort_keys=False)(
        None,
        "info",
        {
            "timestamp": "2023-11-14T22:13:20.262345Z",
            "level": "info",
            "event": "request",
            "method": "GET",
            "status": 200,
        },
    )
    timestamp, method, status = re.findall(r"\S*Z\S*|\S*method\S*|\S*status\S*", str(line))
    assert timestamp in coloured(RECORD)
    assert method.replace("'", "") in coloured(RECORD)
    assert status in coloured(RECORD)


TEXT = st.text(max_size=50) | st.sampled_from(
    ['"', "\n", "\r", "\x1b[2J", "\u2028", '\\" x="y', "%s"]
)


@given(TEXT, TEXT, TEXT)
def test_nobody_writes_into_it(target: str, user_agent: str, detail: str) -> None:
    record = replace(RECORD, target=target, user_agent=user_agent, detail=detail)
    for line in (JSON(record), CONSOLE(record)):
        assert re.fullmatch(r"[ -~]+\n", line)
    read = json.loads(JSON(record))
    assert read["status"] == 200
    assert read.get("user_agent", "") == user_agent
    assert read["target"] == REDACTION(target)
    assert re.sub(r'"(?:[^"\\]|\\.)*"', '""', CONSOLE(record)).count("status=") == 1


def test_a_line_is_not_as_long_as_a_head_may_be() -> None:
    record = replace(RECORD, target="/" + "x" * 60_000, user_agent="y" * 60_000)
    assert len(JSON(record)) < 6000


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("/a", "/a"),
        ("/a?b=c", "/a?b=c"),
        ("/a?token=", "/a?token=***"),
        ("/a?token=abc", "/a?token=***"),
        ("/a?b=c&access_token=abc&d=e", "/a?b=c&access_token=***&d=e"),
        ("/a?API_KEY=abc;d=e", "/a?API_KEY=***;d=e"),
        ("/a?user[password]=abc", "/a?user[password]=***"),
        ("/a?token=abc%26d=e", "/a?token=***"),
        ("/a?token=a=b?c", "/a?token=***"),
        ("/a?tokens-left=3", "/a?tokens-left=***"),
        ("/a?sidebar=open", "/a?sidebar=open"),
        ("/a#!b?sid=abc", "/a#!b?sid=***"),
        (
            "/?a=b%3Fsid%3Dabc%26c%3Dd&e=f",
            "/?a=b%3Fsid%3D***%26c%3Dd&e=f",
        ),
        ("/?_escaped_fragment_=b?sid=abc%26c=d", "/?_escaped_fragment_=b?sid=***"),
        ("https://a.example/?sig=abc: refused", "https://a.example/?sig=*** refused"),
        ("/a?x=1&sid=1 /b?sid=2", "/a?x=1&sid=*** /b?sid=***"),
    ],
)
def test_secrets_are_masked(text: str, masked: str) -> None:
    assert REDACTION(text) == masked


def test_names_of_secrets_are_the_owners() -> None:
    assert Redaction(("*code*",))("/?Promocode=1&token=2") == "/?Promocode=***&token=2"
    assert Redaction(())("/?token=2") == "/?token=2"


@given(
    st.text(), st.text(st.characters(exclude_characters="&;#\"'<>", exclude_categories=["Z", "C"]))
)
def test_no_secret_gets_through(before: str, secret: str) -> None:
    assert REDACTION(f"{before}?token={secret}").endswith("token=***")


async def test_lines_are_written_together_and_some_left_out() -> None:
    written: list[str] = []
    log = AccessLog(written.append, JSON, only_snapshots=True)
    log(RECORD)
    log(replace(RECORD, kind="forward", target="/forwarded"))
    log(replace(RECORD, kind="refuse", target="/refused"))
    assert written == []
    async with asyncio.timeout(raw.SECONDS):
        while not written:
            await asyncio.sleep(0.01)
    assert [json.loads(line)["target"] for line in written[0].splitlines()] == [
        "/a?_escaped_fragment_=b",
        "/refused",
    ]
    log.flush()
    assert len(written) == 1
