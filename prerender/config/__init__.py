"""Settings: declarations (settings.py), types (types.py, places.py), loading (load.py)."""

from prerender.config.load import load
from prerender.config.settings import Settings

__all__ = ["Settings", "load"]
