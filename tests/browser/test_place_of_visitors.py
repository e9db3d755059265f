"""Time zone and language of pages are those of the settings, whatever those of the proxy are."""

import pytest

from prerender.browser.settling import patience
from tests.conftest import StartOrigin, StartProxy, pages

PAGE = """<p id=out></p><script>
  const { timeZone } = new Intl.DateTimeFormat().resolvedOptions();
  const hour = new Date("2026-01-15T12:00:00Z").getHours();
  const worker = new Worker(URL.createObjectURL(new Blob(
    ["postMessage(new Date('2026-07-15T12:00:00Z').getHours())"])));
  worker.onmessage = ({ data }) => { out.textContent = [timeZone, hour, data]; };
</script>"""


SPEAKING = """<script src="/asked.js"></script><p id=out></p><script>
  const spoken = "[navigator.language, navigator.languages, (1234.5).toLocaleString()].join()";
  const worker = new Worker(URL.createObjectURL(new Blob([`postMessage(${spoken})`])));
  worker.onmessage = ({ data }) => { out.textContent = [data === eval(spoken), data]; };
</script>"""


@pytest.mark.ci_only
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ("UTC,12,12", "en-US,en-US,en,1,234.5")),
        (
            {"timezone": "America/New_York", "language": "de-DE"},
            ("America/New_York,7,8", "de-DE,de-DE,de,1.234,5"),
        ),
    ],
    ids=["default", "elsewhere"],
)
async def test_the_time_zone_and_the_language_of_pages(
    settings: dict[str, str],
    expected: tuple[str, str],
    start_origin: StartOrigin,
    start_own_proxy: StartProxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place, shown = expected
    # The workers of these pages say nothing more.
    monkeypatch.setattr(patience, "DELIVERING_SECONDS", 0.3)
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    monkeypatch.setenv("LANG", "fr_FR.UTF-8")
    origin = await pages(start_origin, {"/": SPEAKING, "/asked.js": "", "/place": PAGE})
    proxy = await start_own_proxy(origin.url, {"browser": settings})
    assert f'<p id="out">true,{shown}</p>' in (await proxy.crawl("/")).text
    asked = {request.path: request.headers["Accept-Language"] for request in origin.requests}
    language = settings.get("language", "en-US")
    assert asked == dict.fromkeys(("/", "/asked.js"), f"{language},{language[:2]};q=0.9")
    # Another render in the same context.
    assert f'<p id="out">true,{shown}</p>' in (await proxy.crawl("/?again")).text
    assert f'<p id="out">{place}</p>' in (await proxy.crawl("/place")).text
