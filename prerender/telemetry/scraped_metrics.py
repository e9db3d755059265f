"""Builds Prometheus metrics from plain numbers on scrape. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

# A number, or numbers by label, or by labels.
Values = float | Mapping[Any, float]
# Cumulative counts by upper bound, and the sum.
Distribution = tuple[Sequence[tuple[str, float]], float]


def counter(name: str, text: str, values: Values, *labels: str) -> Metric:
    """A counter."""
    return _with(CounterMetricFamily(name, text, labels=labels), values)


def gauge(name: str, text: str, values: Values, *labels: str) -> Metric:
    """A gauge."""
    return _with(GaugeMetricFamily(name, text, labels=labels), values)


def histogram(
    name: str, text: str, values: Mapping[tuple[str, ...], Distribution], *labels: str
) -> Metric:
    """A histogram by labels."""
    family = HistogramMetricFamily(name, text, labels=labels)
    for of_labels, (buckets, total) in sorted(values.items()):
        family.add_metric(of_labels, buckets, total)
    return family


def _with(family: CounterMetricFamily | GaugeMetricFamily, values: Values) -> Metric:
    pairs = sorted(values.items()) if isinstance(values, Mapping) else [((), values)]
    for labels, value in pairs:
        family.add_metric((labels,) if isinstance(labels, str) else labels, value)
    return family
