"""Addresses that pages must not reach: every kind, in every notation, directly and by redirects."""

from tests.gateway.canaries.names import PRIVATE_DOMAIN, PUBLIC_HOST, REBINDING
from tests.gateway.canaries.network import PRIVATE

REDIRECTS = (301, 302, 303, 307, 308)
# LEG is replaced by the name of the technique.
HOSTS = [
    *(f"[{address}]" if ":" in address else address for address in PRIVATE.values()),
    # The same by other notations
    "localhost",
    "LEG.localhost",
    "0.0.0.0",
    "2130706433",
    "0x7f.1",
    "0251.0376.0251.0376",
    "10.5",
    "10.0.0.5.",
    "[::ffff:10.0.0.5]",
    "[::10.0.0.5]",
    "[2002:a00:5::1]",
    "\uff11\uff10.0.0.5",
    "10\u30020\u30020\u30025",
    "www.example.com@10.0.0.5",
    # By names
    f"LEG.{PRIVATE_DOMAIN}",
    "LEG.here.example",
    "LEG.local6.example",
    "LEG.metadata.example",
    "LEG.both.example",
    f"LEG.{REBINDING}",
    f"other.{REBINDING}",
    "origin.internal",
    # On other ports
    "origin.internal:3000",
    "10.0.0.5:8080",
    "www.example.com:3000",
]
RTC_HOSTS = ["10.0.0.5", "127.0.0.1", "[fd00:ec2::254]", f"rtc.{PRIVATE_DOMAIN}"]


def targets(scheme: str) -> list[str]:
    """The URLs of all of them: direct, and by redirects of a public server and of the site."""
    direct = [f"{scheme}://{host}/LEG" for host in HOSTS]
    public = f"{scheme}://{PUBLIC_HOST}"
    redirected = [f"{public}/{code}?{url}" for code in REDIRECTS for url in direct]
    own = [f"{scheme}://www.example.com/frame/redirect-302?{url}" for url in direct]
    twice = [f"{public}/302?{public}/307?{url}" for url in direct]
    relative = [f"{public}/302?{url.removeprefix(f'{scheme}:')}" for url in direct]
    return [*direct, *redirected, *own, *twice, *relative]
