"""The settings: what there is (settings.py), the kinds of values (types.py), reading them (load.py)."""

from prerender.config.load import load
from prerender.config.settings import Settings

__all__ = ["Settings", "load"]
