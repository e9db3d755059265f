"""Optional parts of the proxy, each behind the seams of prerender/extension.py."""
