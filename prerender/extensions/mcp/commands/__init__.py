"""The command ``prerender mcp``."""
