"""Published applications and component libraries, as their packages deliver them, behind nginx.

The snapshot that a crawler gets through nginx, opened without scripts, is compared with the page of
a visitor: text, title, links, metadata, structured data, and accessibility tree.
"""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from prerender.browser.devtools import Session
from prerender.content.accessibility import Announcement, announced, lost
from prerender.urls.ajax_crawling import pretty_to_ugly
from tests.conftest import StartProxy
from tests.sites.frameworks import origin as frameworks
from tests.support import nginx_server, raw
from tests.support.commands import SITES
from tests.support.plain_browser import plain_browser

FIELD = SITES / "field"
APPLICATIONS = sorted(page.stem for page in (FIELD / "pages").glob("*.html"))
SEEN = (Path(frameworks.__file__).parent / "seen.js").read_text("utf-8")
SAID = """(() => {
  const links = [];
  const walk = (root) => {
    for (const element of root.querySelectorAll("*")) {
      if (element.localName === "a" && element.hasAttribute("href")) {
        links.push([element.getAttribute("href"), element.textContent.replace(/\\s+/g, " ").trim()]);
      }
      if (element.shadowRoot) walk(element.shadowRoot);
    }
  };
  walk(document);
  const metas = Array.from(document.querySelectorAll("meta[name], meta[property]"), (meta) =>
    [meta.getAttribute("name") ?? meta.getAttribute("property"), meta.content]);
  const structured = Array.from(document.querySelectorAll('script[type="application/ld+json"]'),
    (script) => JSON.parse(script.textContent));
  return { links, metas, structured, language: document.documentElement.lang };
})()"""
STILL_SECONDS = 3.0
PATIENCE_SECONDS = 90.0
CONFIG = """
  include /etc/nginx/mime.types;
  server {{
    listen 127.0.0.1:{origin};
    root {field}/pages;
    location /packages/ {{ root {field}; }}
  }}
  server {{
    listen 127.0.0.1:{front};
    location / {{
      proxy_pass http://127.0.0.1:{proxy};
      proxy_set_header Host $http_host;
      proxy_read_timeout 120s;
    }}
  }}
"""

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not (FIELD / "packages/complete").exists(), reason="make test-long fetches the applications"
    ),
]
Look = tuple[dict[str, Any], tuple[Announcement, ...]]


async def opened(page: Session, url: str, *, scripts: bool) -> Look:
    """The contents of a page that has not changed for long."""
    await page.call("Emulation.setScriptExecutionDisabled", value=not scripts)
    loaded = page.expect("Page.loadEventFired")
    await page.call("Page.navigate", url=url)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await loaded
        found, since = await looked(page), time.monotonic()
        while time.monotonic() - since < (STILL_SECONDS if scripts else 0):
            await asyncio.sleep(0.3)
            if (now := await looked(page)) != found:
                found, since = now, time.monotonic()
    return found, announced((await page.call("Accessibility.getFullAXTree"))["nodes"])


async def looked(page: Session) -> dict[str, Any]:
    seen = await page.evaluate(SEEN)
    said: dict[str, Any] = await page.evaluate(SAID)
    return said | {"title": seen["title"], "texts": [text for text, _ in seen["texts"]]}


async def test_snapshots_say_what_the_applications_say(
    start_proxy: StartProxy, tmp_path: Path
) -> None:
    assert len(APPLICATIONS) == 17
    behind, front, proxy_port = raw.free_ports(3)
    config = CONFIG.format(field=FIELD, origin=behind, front=front, proxy=proxy_port)
    site = f"http://127.0.0.1:{front}"
    async with (
        nginx_server.running(tmp_path, config, front),
        plain_browser("--window-size=1280,1024") as browser,
    ):
        overrides = {"server": {"port": proxy_port}, "site": {"url": site}}
        proxy = await start_proxy(f"http://127.0.0.1:{behind}", overrides)
        target = await browser.call("Target.createTarget", url="about:blank")
        page = await browser.attach(target["targetId"])
        await page.call("Page.enable")
        wrong = {}
        for name in APPLICATIONS:
            ugly = pretty_to_ugly(f"/{name}.html", opted_in=True)
            async with proxy.client.get(f"{site}{ugly}") as answer:
                if answer.status != 200 or "stored" not in answer.headers["Cache-Status"]:
                    wrong[name] = f"{answer.status} {answer.headers.get('Cache-Status')}"
                    continue
            snapshot = await opened(page, f"{site}{ugly}", scripts=False)
            live = await opened(page, f"{site}/{name}.html", scripts=True)
            assert len(" ".join(live[0]["texts"])) > 20, (name, live[0])
            if difference := compared(snapshot, live):
                wrong[name] = difference
    assert wrong == {}


def compared(snapshot: Look, live: Look) -> str:
    """The first difference of the snapshot, or ''."""
    for what, theirs in live[0].items():
        ours = snapshot[0][what]
        if ours != theirs:
            if isinstance(theirs, list):
                added = [one for one in ours if one not in theirs]
                missing = [one for one in theirs if one not in ours]
                return f"{what}: {str(added)[:500]} instead of {str(missing)[:500]}"
            return f"{what}: {ours} instead of {theirs}"
    unsaid = lost(live[1], snapshot[1])
    return f"a screen reader misses {unsaid}" if unsaid else ""
