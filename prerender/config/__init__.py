"""Settings: declarations (settings.py), types (types.py, network_types.py), loading (load.py)."""

from prerender.config.load import load
from prerender.config.settings import Settings

__all__ = ["Settings", "load"]
