"""Snapshots: what they are, and how they are kept and shared."""
