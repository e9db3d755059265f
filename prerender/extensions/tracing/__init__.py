"""Spans of requests and renders, exported by OpenTelemetry."""
