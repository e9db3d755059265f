"""``python -m prerender`` is the command ``prerender``."""

from prerender.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
