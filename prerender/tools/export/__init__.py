"""Snapshots as files that nginx serves by itself."""
