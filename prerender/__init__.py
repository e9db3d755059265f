"""A reverse proxy that answers crawlers with HTML snapshots of JavaScript pages.

Start reading at ``app.py``.
"""

__version__ = "0.2.0"
