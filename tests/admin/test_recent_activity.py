"""Pages with problems: present ones first."""

from prerender.admin.recent_activity import Recent
from prerender.snapshots.target import Target
from prerender.telemetry.records import RenderOutcome, RenderRecord
from prerender.urls.ajax_crawling import PrettyURL
from tests.support.renders import PUBLIC


def record(path: str, time: float, outcome: RenderOutcome) -> RenderRecord:
    return RenderRecord(
        time=time,
        seconds=1.0,
        target=Target.of(PUBLIC, PrettyURL(path, "")),
        outcome=outcome,
        error="RenderTimeout" if outcome == "failed" else "",
        reason="",
        status=0,
        bytes=0,
        timings=None,
        facts=None,
        trace=None,
    )


def test_present_problems_come_before_those_that_are_over() -> None:
    recent = Recent()
    renders: list[tuple[float, str, RenderOutcome]] = [
        (1.0, "/over", "failed"),
        (2.0, "/over", "failed"),
        (3.0, "/over", "complete"),
        (4.0, "/now", "failed"),
    ]
    for time, path, outcome in renders:
        recent.render(record(path, time, outcome))
    failing = recent.worst(25).failing
    assert [(page.url[-4:], page.failed, page.is_over) for page in failing] == [
        ("/now", 1, False),
        ("over", 2, True),
    ]
    assert recent.worst(1).failing[0].url.endswith("/now")
