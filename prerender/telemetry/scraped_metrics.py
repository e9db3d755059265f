"""Builds Prometheus metrics from plain counters on scrape. Pure."""

from collections.abc import Mapping, Sequence

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

Labels = tuple[str, ...]
# Cumulative counts by upper bound, and the sum.
Distribution = tuple[Sequence[tuple[str, float]], float]


def counter(name: str, text: str, labels: Labels, counts: Mapping[Labels, int]) -> Metric:
    """A counter by the values of its labels."""
    family = CounterMetricFamily(name, text, labels=labels)
    for values, count in sorted(counts.items()):
        family.add_metric(values, count)
    return family


def gauge(name: str, text: str, labels: Labels, values: Mapping[Labels, float]) -> Metric:
    """A gauge by the values of its labels."""
    family = GaugeMetricFamily(name, text, labels=labels)
    for of_labels, value in values.items():
        family.add_metric(of_labels, value)
    return family


def histogram(
    name: str, text: str, labels: Labels, distributions: Mapping[Labels, Distribution]
) -> Metric:
    """A histogram by the values of its labels."""
    family = HistogramMetricFamily(name, text, labels=labels)
    for values, (buckets, total) in sorted(distributions.items()):
        family.add_metric(values, buckets, total)
    return family
