"""Exports snapshots as files that nginx serves without the proxy."""
