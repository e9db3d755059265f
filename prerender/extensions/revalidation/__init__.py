"""Renews snapshots without rendering, when nothing that their pages read has changed."""
