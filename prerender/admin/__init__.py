"""The admin listener."""
