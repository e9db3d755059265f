"""Renews popular snapshots before they expire, and all after a deploy."""
