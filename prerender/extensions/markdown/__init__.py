"""Snapshots as Markdown."""
