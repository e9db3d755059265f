"""Telemetry: records of requests and renders, metrics, logs, traces and notices."""
