"""Snapshots as files: made, served by nginx alone, and given to a running proxy."""
