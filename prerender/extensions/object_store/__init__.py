"""Snapshots in an object store, alone or behind Redis."""
