"""Submits changed pages to search engines."""
