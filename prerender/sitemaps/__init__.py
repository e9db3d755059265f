"""Sitemaps: parsing, reading from anywhere, and writing."""
