"""The files in deploy/autoscaling and what the chart makes of them."""

from typing import TYPE_CHECKING, Any

import kubernetes_validate
import promql_parser
import pytest
import yaml

from prerender.browser.pool import PoolState
from prerender.telemetry.state_metrics import pool_metrics
from tests.project.test_deploy import DEPLOY, charted, helm, named

if TYPE_CHECKING:
    from prometheus_client.core import Metric

AUTOSCALING = DEPLOY / "autoscaling"


def parsed(file: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((AUTOSCALING / file).read_text("utf-8"))
    return content


def of_adapter() -> dict[str, Any]:
    (rule,) = parsed("prometheus-adapter.yaml")["rules"]["custom"]
    return dict(rule)


def query_of(scaled: dict[str, Any]) -> str:
    """The query of KEDA's trigger. All parameters of a trigger must be strings."""
    (trigger,) = scaled["triggers"]
    assert trigger["type"] == "prometheus"
    assert all(isinstance(value, str) for value in trigger["metadata"].values())
    return str(trigger["metadata"]["query"])


def test_the_queries_ask_for_metrics_that_exist() -> None:
    adapter = of_adapter()["metricsQuery"]
    for placeholder, value in (("<<.GroupBy>>", "pod"), ("<<.LabelMatchers>>", 'pod="a"')):
        assert placeholder in adapter
        adapter = adapter.replace(placeholder, value)
    of_chart = named(charted({"autoscaling": {"by": "keda"}}), "ScaledObject")
    exist = {metric.name for metric in pool_metrics(PoolState(1, 0, 1, 2, 2, 9))}
    for query in (adapter, query_of(parsed("keda.yaml")["spec"]), query_of(of_chart)):
        promql_parser.parse(query)
        asked = {"prerender_pages_wanted", "prerender_pool_size"}
        assert all(name in query for name in asked)
        assert asked <= exist


def test_wanted_pages_are_those_that_render_and_those_that_are_missing() -> None:
    def value(state: PoolState) -> float:
        metrics: dict[str, Metric] = {metric.name: metric for metric in pool_metrics(state)}
        return float(metrics["prerender_pages_wanted"].samples[0].value)

    assert value(PoolState(size=3, idle=3, busy=0, waiting=0, admitted=0, queue_limit=9)) == 0
    assert value(PoolState(size=3, idle=0, busy=3, waiting=6, admitted=8, queue_limit=9)) == 9


def test_the_autoscaler_reads_the_metric_of_the_adapter() -> None:
    autoscaler = parsed("hpa.yaml")
    kubernetes_validate.validate(autoscaler, kubernetes_validate.latest_version(), strict=True)
    (metric,) = autoscaler["spec"]["metrics"]
    assert metric["pods"]["metric"]["name"] == of_adapter()["name"]["as"]


@pytest.mark.parametrize("kind", ["hpa", "keda"])
def test_the_chart_has_the_same(kind: str) -> None:
    found = charted({"autoscaling": {"by": kind}})
    plain = parsed(f"{kind}.yaml")
    made = named(found, plain["kind"])
    assert "replicas" not in named(found, "Deployment")
    wanted = plain["spec"]
    if kind == "keda":
        # The chart knows more about its pods.
        assert 'namespace="web"' in query_of(made)
        for spec in (made, wanted):
            spec["triggers"][0]["metadata"].update(query="", threshold="")
            spec["fallback"]["replicas"] = 0
    assert made == wanted


def test_how_busy_the_pages_of_the_chart_may_be() -> None:
    hpa = named(
        charted({"autoscaling": {"by": "hpa", "busyPercent": 65}}), "HorizontalPodAutoscaler"
    )
    assert hpa["metrics"][0]["pods"]["target"]["averageValue"] == "650m"
    keda = named(charted({"autoscaling": {"by": "keda", "busyPercent": 65}}), "ScaledObject")
    assert keda["triggers"][0]["metadata"]["threshold"] == "0.65"
    assert "HorizontalPodAutoscaler" not in {one["kind"] for one in charted({})}
    assert helm({"autoscaling": {"by": "cpu"}}).returncode == 1


def test_a_chart_whose_busy_replicas_leave_has_a_service_of_all() -> None:
    found = charted({"leaveWhenBusy": True})
    (container,) = named(found, "Deployment")["template"]["spec"]["containers"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz/queue"
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    everyone = named(found, "Service", "prerender-all")
    assert everyone.pop("publishNotReadyAddresses")
    assert everyone == named(found, "Service")
    for manifest in found:
        kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)
