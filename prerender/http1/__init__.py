"""HTTP/1.1 on the wire (RFC 9112), for what is forwarded: the client's bytes are the origin's bytes.

``head.py`` and ``body.py`` are pure; ``connection.py`` is a socket with deadlines, ``server.py`` the
clients' side of it and ``client.py`` the origin's.
"""
