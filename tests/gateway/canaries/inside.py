"""The program that runs inside the network of canaries. It prints what was touched, as JSON.

``python -m tests.gateway.canaries.inside CERTIFICATE WHAT``: control, redirected, short, listed, or
'https public 0' and the like.
"""

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, web

from prerender import app
from prerender.config.settings import LogSettings
from prerender.telemetry import logs
from tests.conftest import settings_for
from tests.gateway.canaries import network
from tests.gateway.canaries.legs import NOT_REDIRECTED, NOT_THERE
from tests.gateway.canaries.names import PRIVATE_DOMAIN, PUBLIC_HOST, Names
from tests.gateway.canaries.network import ORIGIN, PRIVATE, PUBLIC, SITE, Capture, Packet
from tests.gateway.canaries.site import LEAVING, PORTS, page, redirector, site
from tests.gateway.canaries.targets import RTC_HOSTS, targets
from tests.support import certificates
from tests.support.plain_browser import plain_browser

ORIGIN_PORT = 3000
# Above are ports of clients, to which answers go.
FIRST_EPHEMERAL_PORT = 32768
SECONDS = 100
READ_SECONDS = 10
MULTICAST_DNS = Packet("UDP", "224.0.0.251", 5353)
STATE = "globalThis.out?.textContent"
# Of all targets, to how many each leg of a page leads in a long run: with more, the page would be
# closed for its frames.
EACH = 3
# A run takes one part of its pages.
PARTS = 4
# Of real time, for what a browser sends when the page has done all it does.
LATE_SECONDS = 2.0
BLOCKED = re.compile(
    r'^prerender_gateway_requests_total{verdict="blocked"} ([0-9.]+)$', re.MULTILINE
)


@dataclass(frozen=True)
class Servers:
    """The site's pages, the techniques that reached a canary, and the names that were looked up."""

    pages: dict[str, str]
    touched: set[str]
    asked: set[str]

    def question(self, name: str) -> None:
        """A name was looked up."""
        self.asked.add(name)
        if name.endswith(f".{PRIVATE_DOMAIN}"):
            self.touched.add(name.partition(".")[0])

    async def canary(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Something has connected to a private address, with HTTP."""
        try:
            async with asyncio.timeout(READ_SECONDS):
                line = await reader.readline()
        except (TimeoutError, ValueError, OSError):
            line = b""
        if found := re.match(rb"[A-Z]+ (?:https?://[^/]+)?/([\w-]+)", line):
            self.touched.add(found[1].decode())
        head = "HTTP/1.1 200 OK\r\nAccess-Control-Allow-Origin: *\r\n"
        allow = "Access-Control-Allow-Headers: *\r\n"
        writer.write(f"{head}{allow}Content-Length: 0\r\nConnection: close\r\n\r\n".encode())
        writer.close()

    async def wait(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Something has connected by WebRTC. Chromium crashes if the other side closes first."""
        with suppress(OSError):
            await reader.read()
        writer.close()


@asynccontextmanager
async def servers(certificate: Path) -> AsyncIterator[Servers]:
    """The name server, the site at its public address and as an origin, a public third party, and
    the canaries.
    """
    served = Servers({}, set(), set())
    secure = certificates.server_context(certificate)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(Names.serving(served.question))
        for application, address, port in [
            (site(served.pages), SITE, 443),
            (site(served.pages), ORIGIN, ORIGIN_PORT),
            (redirector(), PUBLIC, 80),
            (redirector(), PUBLIC, 443),
        ]:
            runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            context = secure if port == 443 else None
            await web.TCPSite(runner, address, port, ssl_context=context).start()
        # Packets are seen without them, but not by which leg they were sent.
        host = PRIVATE["10/8"]
        plain = await asyncio.start_server(served.canary, host, 80)
        stack.callback(plain.close)
        over_tls = await asyncio.start_server(served.canary, host, 443, ssl=secure)
        stack.callback(over_tls.close)
        for port in PORTS.values():
            waiting = await asyncio.start_server(served.wait, host, port)
            stack.callback(waiting.close)
        yield served


async def control(certificate: Path, served: Servers, redirected: bool) -> dict[str, Any]:
    """What an ordinary browser reaches with the same page: directly, and by a redirect if wanted."""
    flags = (
        f"--ignore-certificate-errors-spki-list={certificates.spki_sha256(certificate)}",
        "--short-reporting-delay",
        # Chromium's own guard of local networks.
        "--disable-features=LocalNetworkAccessChecks",
    )
    results: dict[str, Any] = {}
    direct = f"https://LEG.{PRIVATE_DOMAIN}/LEG"
    kinds: list[tuple[str, str, set[str]]] = [("direct", direct, set())]
    if redirected:
        kinds.append(("redirected", f"https://{PUBLIC_HOST}/302?{direct}", NOT_REDIRECTED))
    with Capture() as capture:
        for kind, target, absent in kinds:
            served.touched.clear()
            served.pages["/"] = page([target], [PRIVATE["10/8"]])
            async with plain_browser(*flags) as devtools:
                url = "https://www.example.com"
                opened = await devtools.call("Target.createTarget", SECONDS, url=f"{url}/")
                tab = await devtools.attach(opened["targetId"])
                async with asyncio.timeout(SECONDS):
                    while await tab.evaluate(STATE, SECONDS) != "tried":
                        await asyncio.sleep(0.05)
                legs = {*(await tab.evaluate("document.body.dataset.legs", SECONDS)).split()}
                for name in LEAVING:
                    leaving = f"{url}/leave/{name}?{target.replace('LEG', name)}"
                    await devtools.call("Target.createTarget", SECONDS, url=leaving)
                expected = {*legs, *LEAVING} - NOT_THERE - absent
                with suppress(TimeoutError):
                    async with asyncio.timeout(SECONDS):
                        while not (
                            expected <= served.touched
                            and _webrtc(capture) == PORTS.keys()
                            and MULTICAST_DNS in capture.leaving
                        ):
                            await asyncio.sleep(0.1)
            results[kind] = sorted(served.touched)
    results["webrtc"] = sorted(_webrtc(capture))
    results["left"] = sorted(capture.leaving)
    results["legs"] = sorted([*legs, *LEAVING])
    return results


def _webrtc(capture: Capture) -> set[str]:
    """The WebRTC techniques that sent a packet to the private address."""
    packets = capture.packets.copy()  # a thread adds to them
    ports = {packet.port for packet in packets if packet.address == PRIVATE["10/8"]}
    return {name for name, port in PORTS.items() if port in ports}


async def guarded(
    served: Servers, scheme: str, third_parties: str, shifts: range, each: int
) -> dict[str, Any]:
    """What is reached while the proxy renders the page with each of the shifts."""
    led = targets(scheme)
    served.asked.clear()
    paths = []
    for shift in shifts:
        served.pages[f"/{shift}"] = page(led, RTC_HOSTS, each, shift)
        paths.append(f"/{shift}?_escaped_fragment_=")
    for number, name in enumerate(LEAVING):
        target = led[(shifts.start + number * 7) % len(led)].replace("LEG", name)
        paths.append(f"/leave/{name}?{target}&_escaped_fragment_=")
    settings = settings_for(
        f"http://origin.internal:{ORIGIN_PORT}",
        {
            "site": {"url": f"{scheme}://www.example.com"},
            "network": {
                "third_parties": third_parties,
                "allow": [PUBLIC_HOST],
                "max_requests": 100_000,
                "max_bytes": 1024**3,
            },
            "render": {"timeout": SECONDS},
            "browser": {"pages": 1, "sandbox": "off"},
            "log": {"level": "error"},
        },
    )
    answers = {}
    with Capture() as capture:
        async with app.serving(settings) as running, ClientSession() as client:
            url = f"http://127.0.0.1:{running.public_port}"
            for path in paths:
                async with client.get(f"{url}{path}", allow_redirects=False) as answer:
                    answers[path] = (answer.status, ">tried<" in await answer.text())
            async with asyncio.timeout(SECONDS):
                while "1 idle" not in repr(running.pool):
                    await asyncio.sleep(0.01)
            await asyncio.sleep(LATE_SECONDS)
            metrics = f"http://127.0.0.1:{running.admin_port}/metrics"
            async with client.get(metrics) as answer:
                blocked = BLOCKED.search(await answer.text())
    return {
        "scheme": scheme,
        "third_parties": third_parties,
        "answers": answers,
        "blocked": float(blocked[1]) if blocked else 0.0,
        "asked": sorted(served.asked),
        "touched": sorted(packet for packet in capture.packets if _is_canary(packet)),
        "left": sorted(packet for packet in capture.leaving if packet.protocol in ("TCP", "UDP")),
    }


def _is_canary(packet: Packet) -> bool:
    if packet.port >= FIRST_EPHEMERAL_PORT or packet == Packet("TCP", ORIGIN, ORIGIN_PORT):
        return False
    # What closed ports answer.
    return packet.address in PRIVATE.values() and packet.protocol in ("TCP", "UDP")


async def main(certificate: Path, what: str) -> None:
    """Set up the network, and run ``what`` in it."""
    network.make()
    logs.configure(LogSettings(level="error"))
    async with servers(certificate) as served:
        if what in ("control", "redirected"):
            results: Any = await control(certificate, served, what == "redirected")
        elif what == "short":
            results = [await guarded(served, "https", "public", range(1), 1)]
        elif what == "listed":
            results = [await guarded(served, "http", "listed", range(1, 2), 1)]
        else:
            scheme, third_parties, part = what.split()
            shifts = range(0, len(targets(scheme)), EACH)[int(part) :: PARTS]
            results = [await guarded(served, scheme, third_parties, shifts, EACH)]
    print(json.dumps(results))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
