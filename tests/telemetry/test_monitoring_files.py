"""The Grafana dashboard, the alert rules and the documentation match the metrics of a proxy."""

import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any, get_args

import promql_parser
import pytest
import yaml
from prometheus_client import Metric

from prerender.errors import ErrorCode
from prerender.snapshots.snapshot import CacheResult
from prerender.telemetry.records import RenderOutcome, Source
from prerender.visits.alerts import RULES
from tests.conftest import StartOrigin, StartProxy, pages
from tests.support.commands import ROOT
from tests.telemetry.test_metrics import Samples, samples, until

ALERTS = ROOT / "deploy/prometheus/alerts.yml"
DASHBOARD = ROOT / "deploy/grafana/dashboard.json"
RULE_TESTS = ROOT / "tests/telemetry/alert_rules_test.yml"
DOCUMENT = ROOT / "docs/operating.md"
GOOGLEBOT = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"
# Prometheus adds these itself.
ITS_OWN = {"up"}
ITS_LABELS = {"job", "instance", "le"}
VARIABLES = {"$__rate_interval": "5m", "$job": "prerender", "$instance": "a"}
VALUES = {
    "outcome": {*RenderOutcome},
    "result": {*CacheResult},
    "source": {*get_args(Source)},
    "error": {*ErrorCode},
}


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text("utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    return [panel for panel in found if panel["type"] != "row"]


def expressions() -> Iterator[tuple[str, str]]:
    """All PromQL expressions, with their places."""
    for rule in rules():
        yield rule["alert"], rule["expr"]
    for panel in panels():
        for target in panel["targets"]:
            expression = target["expr"]
            for name, value in VARIABLES.items():
                expression = expression.replace(name, value)
            yield panel["title"], expression


def selectors(expression: str) -> list[promql_parser.VectorSelector]:
    found = []

    def visit(node: object) -> None:
        if isinstance(node, promql_parser.MatrixSelector):
            node = node.vector_selector
        if isinstance(node, promql_parser.VectorSelector):
            found.append(node)

    promql_parser.walk(promql_parser.parse(expression), visit)
    assert found
    return found


def labels_of(families: Mapping[str, Metric]) -> dict[str, dict[str, set[str]]]:
    """The labels of each metric, with the values seen."""
    suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}
    found: dict[str, dict[str, set[str]]] = {}
    for family in families.values():
        for suffix in suffixes.get(family.type, ("",)):
            found[family.name + suffix] = {}
        for sample in family.samples:
            values = found.setdefault(sample.name, {})
            for label, value in sample.labels.items():
                values.setdefault(label, set()).add(value)
    return found


@pytest.fixture
async def told(start_origin: StartOrigin, start_proxy: StartProxy) -> Samples:
    """The metrics of a proxy after some of everything has happened."""
    page = "<title>a</title><p>Content</p><script src=/a.js></script>"
    origin = await pages(start_origin, {"/": page, "/a.js": "", "/text": "x"})
    # No Redis listens there: each lookup is a fault of the store.
    proxy = await start_proxy(origin.url, {"cache": {"url": "redis://127.0.0.1:1/0"}})
    await until(proxy, "prerender_ready", 1)
    await asyncio.gather(*(proxy.crawl("/#!a") for _ in range(2)))
    await proxy.crawl("/#!a", headers={"User-Agent": GOOGLEBOT})
    await proxy.crawl("/text")
    await proxy.get("/text")
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.running.public_port)
    writer.write(b"nonsense\r\n\r\n")
    await reader.read()
    writer.close()
    await until(proxy, "prerender_requests_total", 5)
    return await samples(proxy)


def test_each_cache_result_is_drawn() -> None:
    hits = "|".join(one for one in CacheResult if one.is_hit)
    text = DASHBOARD.read_text("utf-8")
    assert set(re.findall(r'result=~\\"(hit[^"\\]*)', text)) == {hits}
    (panel,) = (
        one
        for one in panels()
        if any(
            it["expr"].startswith("sum by (result) (rate(prerender_snap") for it in one["targets"]
        )
    )
    coloured = {one["matcher"]["options"] for one in panel["fieldConfig"]["overrides"]}
    assert coloured == {*CacheResult}


async def test_all_that_is_asked_for_is_told(told: Samples) -> None:
    known = labels_of(told.families)
    for where, expression in expressions():
        for selector in selectors(expression):
            name = selector.name
            if name in ITS_OWN:
                continue
            assert name in known, f"{where}: {name}"
            for matcher in selector.matchers.matchers:
                if matcher.name in ITS_LABELS:
                    continue
                if matcher.name == "code":
                    assert re.fullmatch(r"[0-9.|]+", matcher.value), where
                    continue
                seen = known[name][matcher.name] | VALUES.get(matcher.name, set())
                assert set(matcher.value.split("|")) <= seen, f"{where}: {name}: {matcher.value}"
            for names in re.findall(r"by \(([\w, ]+)\)", expression):
                wanted = {label.strip() for label in names.split(",")} - ITS_LABELS
                assert wanted <= known[name].keys(), f"{where}: {name} has no {wanted}"


async def test_the_document_names_all_metrics_and_no_others(told: Samples) -> None:
    text = DOCUMENT.read_text("utf-8")
    described = dict(re.findall(r"^\| `(prerender_\w+)` \| ([^|]*?) ?\|", text, re.MULTILINE))
    known = {}
    for family in told.families.values():
        if family.name.startswith("prerender_"):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            labels = sorted(
                {label for sample in family.samples for label in sample.labels} - {"le"}
            )
            # Without lists of ranges, their age has no value.
            known[name] = ", ".join(f"`{label}`" for label in labels) or described.get(name, "")
    assert {
        name: ", ".join(sorted(labels.split(", "))) for name, labels in described.items()
    } == known


def test_each_alert_is_described_and_worded() -> None:
    headings = set(re.findall(r"^### (Prerender\w+)$", DOCUMENT.read_text("utf-8"), re.MULTILINE))
    assert headings == {rule["alert"] for rule in rules()}
    for rule in rules():
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
        assert rule["annotations"]["runbook_url"].endswith(
            f"/operating.html#{rule['alert'].lower()}"
        )
    assert {*RULES.values()} <= headings


@pytest.mark.long
def test_the_rules_about_crawlers_fire_when_they_should() -> None:
    if (promtool := shutil.which("promtool")) is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    subprocess.run([promtool, "test", "rules", str(RULE_TESTS)], check=True)


def test_promtool_accepts_the_rules() -> None:
    if (promtool := shutil.which("promtool")) is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    subprocess.run([promtool, "check", "rules", str(ALERTS)], check=True)


def test_the_dashboard_is_whole() -> None:
    dashboard = json.loads(DASHBOARD.read_text("utf-8"))
    everything = dashboard["panels"]
    assert len({panel["id"] for panel in everything}) == len(everything)
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    assert variables == {"datasource", "job", "instance"}
    for panel in panels():
        assert panel["datasource"]["uid"] == "${datasource}"
        assert panel["title"]
        for target in panel["targets"]:
            assert target["datasource"]["uid"] == "${datasource}"
            assert "$job" in target["expr"]
    for one, other in combinations([panel["gridPos"] for panel in everything], 2):
        apart = (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )
        assert apart, (one, other)
        assert one["x"] + one["w"] <= 24
