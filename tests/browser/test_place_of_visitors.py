"""Time zone and language of pages are those of the settings, whatever those of the proxy are."""

import pytest

from tests.conftest import StartOrigin, StartProxy, pages

PAGE = """<p id=out></p><script>
  const { timeZone } = new Intl.DateTimeFormat().resolvedOptions();
  const hour = new Date("2026-01-15T12:00:00Z").getHours();
  const worker = new Worker(URL.createObjectURL(new Blob(
    ["postMessage(new Date('2026-07-15T12:00:00Z').getHours())"])));
  worker.onmessage = ({ data }) => { out.textContent = [timeZone, hour, data]; };
</script>"""


@pytest.mark.parametrize(
    ("settings", "expected"),
    [({}, "UTC,12,12"), ({"browser": {"timezone": "America/New_York"}}, "America/New_York,7,8")],
    ids=["default", "new-york"],
)
async def test_the_time_zone_of_pages(
    settings: dict[str, dict[str, object]],
    expected: str,
    start_origin: StartOrigin,
    start_own_proxy: StartProxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    origin = await pages(start_origin, {"/": PAGE})
    proxy = await start_own_proxy(origin.url, settings)
    assert f'<p id="out">{expected}</p>' in (await proxy.crawl("/")).text


SPEAKING = """<script src="/asked.js"></script><p id=out></p><script>
  const spoken = "[navigator.language, navigator.languages, (1234.5).toLocaleString()].join()";
  const worker = new Worker(URL.createObjectURL(new Blob([`postMessage(${spoken})`])));
  worker.onmessage = ({ data }) => { out.textContent = [data === eval(spoken), data]; };
</script>"""


@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        ({}, "en-US,en-US,en,1,234.5"),
        ({"language": "de-DE"}, "de-DE,de-DE,de,1.234,5"),
    ],
    ids=["default", "de-DE"],
)
async def test_the_language_of_pages(
    settings: dict[str, str],
    shown: str,
    start_origin: StartOrigin,
    start_own_proxy: StartProxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LANG", "fr_FR.UTF-8")
    origin = await pages(start_origin, {"/": SPEAKING, "/asked.js": ""})
    proxy = await start_own_proxy(origin.url, {"browser": settings})
    assert f'<p id="out">true,{shown}</p>' in (await proxy.crawl("/")).text
    asked = {request.path: request.headers["Accept-Language"] for request in origin.requests}
    language = settings.get("language", "en-US")
    assert asked == dict.fromkeys(("/", "/asked.js"), f"{language},{language[:2]};q=0.9")
    # Another render in the same context.
    assert f'<p id="out">true,{shown}</p>' in (await proxy.crawl("/?again")).text
