"""The time zone of pages is that of the settings, whatever that of the proxy is."""

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
