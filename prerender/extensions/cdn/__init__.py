"""Keeps a CDN in step: tags on snapshots, and purges that reach it."""
