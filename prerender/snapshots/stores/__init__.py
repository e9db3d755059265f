"""Stores of snapshots: memory, file, Redis, other aiocache backends. store.py is their interface."""
