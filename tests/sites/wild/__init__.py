"""Pages and servers after public reports of site owners, by kind of fault (application.py)."""
