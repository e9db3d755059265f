"""An MCP server, by which AI agents operate a running proxy."""
