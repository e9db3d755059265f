"""The browser reaches nothing but the origin and the public Internet.

In the test's network, every private address is an address of this machine, and each packet to one
is seen. A page sends requests by every technique to all kinds of addresses, directly and by
redirects. The control shows that the packets are seen: an ordinary browser sends them.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.canaries import network
from tests.gateway.canaries.inside import PARTS
from tests.gateway.canaries.legs import NOT_REDIRECTED, NOT_THERE
from tests.gateway.canaries.names import DOMAINS, PUBLIC_HOST
from tests.gateway.canaries.site import PORTS
from tests.support import certificates
from tests.support.commands import ROOT

PROBLEM = network.problem()
pytestmark = pytest.mark.skipif(bool(PROBLEM), reason=PROBLEM)
MULTICAST_DNS = ["UDP", "224.0.0.251", 5353]


async def inside(tmp_path: Path, what: str, seconds: float) -> Any:
    """The output of the program in the network (canaries/inside.py)."""
    certificate = tmp_path / "certificate.pem"
    certificates.write(certificate, "www.example.com", PUBLIC_HOST)
    process = await asyncio.create_subprocess_exec(
        *(*network.INSIDE, sys.executable, "-m", "tests.gateway.canaries.inside"),
        *(str(certificate), what),
        cwd=ROOT,
        env=os.environ | {"SSL_CERT_FILE": str(certificate)},
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(seconds):
            out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0
    return json.loads(out)


def nothing_was_touched(run: dict[str, Any]) -> None:
    assert run["touched"] == []
    assert run["left"] == []
    tried = [path for path, (_, tried) in run["answers"].items() if tried]
    assert len(tried) == sum(path[1].isdigit() for path in run["answers"])
    # The ways to leave make redirects, which are the crawler's business, except for posted forms.
    for path, (status, _) in run["answers"].items():
        posts = path.startswith("/leave/form?")
        assert path in tried or status in ((503,) if posts else (302, 307))
    assert run["blocked"] > 50 * len(tried)
    if run["third_parties"] == "listed":
        private = [name for name in DOMAINS if name not in (PUBLIC_HOST, "origin.internal")]
        assert not [name for name in run["asked"] if name.endswith(tuple(private))]


@pytest.mark.timeout(300)
@pytest.mark.long
@pytest.mark.parametrize("what", ["control", "redirected"])
async def test_an_ordinary_browser_touches_them(tmp_path: Path, what: str) -> None:
    control = await inside(tmp_path, what, 240)
    assert set(control["legs"]) - set(control["direct"]) == NOT_THERE
    if what == "redirected":
        missing = set(control["direct"]) - set(control["redirected"])
        assert missing <= NOT_REDIRECTED
    assert set(control["webrtc"]) == set(PORTS)
    assert MULTICAST_DNS in control["left"]


@pytest.mark.ci_only
@pytest.mark.timeout(300)
@pytest.mark.parametrize("what", ["short", pytest.param("listed", marks=pytest.mark.long)])
async def test_no_page_touches_them(tmp_path: Path, what: str) -> None:
    for run in await inside(tmp_path, what, 240):
        nothing_was_touched(run)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("scheme", ["https", "http"])
@pytest.mark.parametrize("third_parties", ["public", "listed"])
@pytest.mark.parametrize("part", range(PARTS))
async def test_no_page_touches_any_of_them(
    tmp_path: Path, scheme: str, third_parties: str, part: int
) -> None:
    """Every technique with every address and every redirect."""
    (run,) = await inside(tmp_path, f"{scheme} {third_parties} {part}", 3600)
    nothing_was_touched(run)
