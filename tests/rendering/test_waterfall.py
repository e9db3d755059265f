"""The requests of a render, in the order of their starts."""

from prerender.browser.page_results import Resource
from prerender.gateway.visit import Visit
from prerender.rendering.waterfall import MOST_FETCHES, waterfall
from tests.support.renders import PUBLIC


def test_the_waterfall() -> None:
    visit = Visit(PUBLIC, None)
    with visit.requests.exchange("GET", f"{PUBLIC}", "document") as document:
        document.status = 200
    with visit.requests.exchange("POST", f"{PUBLIC}/api", "empty") as api:
        api.status = 500
    with visit.requests.exchange("GET", f"{PUBLIC}/events", "empty") as events:
        events.status = 200
        events.expect_no_end()
    with visit.requests.exchange("GET", "https://ads.example/", "script") as ad:
        ad.blocked, ad.reason, ad.status = True, "a tracker", 200
    under_way = visit.requests.exchange("GET", f"{PUBLIC}/slow", "empty")
    under_way.__enter__()
    for seconds, exchange in enumerate(visit.requests.exchanges):
        exchange.started += seconds
    resources = [
        Resource(f"{PUBLIC}/kept.js", "script", 200, 9, 0.0),
        Resource(f"{PUBLIC}/api", "fetch", 500, 9, 0.0),
        Resource("data:,x", "img", 200, 9, 0.0),
    ]
    found = waterfall(visit, resources)
    verdicts = {fetch.url.removeprefix(str(PUBLIC)): fetch.verdict for fetch in found}
    assert verdicts == {
        "": "allowed", "/api": "failed", "/events": "stream", "https://ads.example/": "blocked",
        "/slow": "unanswered", "/kept.js": "cached",
    }  # fmt: skip
    assert [fetch.start for fetch in found] == sorted(fetch.start for fetch in found)
    assert [fetch.url.removeprefix(str(PUBLIC)) for fetch in found[:3]] == ["", "/kept.js", "/api"]
    under_way.__exit__(None, None, None)
    for number in range(500):
        with visit.requests.exchange("GET", f"{PUBLIC}/{'x' * 9000}{number}", "script"):
            pass
    found = waterfall(visit)
    assert len(found) == MOST_FETCHES
    assert max(len(fetch.url) for fetch in found) == 500
