"""HTTP as a protocol: heads, bodies, conditions, negotiation, caching. Pure, but for connection.py."""
