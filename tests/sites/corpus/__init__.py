"""Small pages, one way of finishing late each, and the origin that serves them (origin.py).

Each page starts with ``<p id="out">waiting</p>`` and names in ``<meta name="expected">`` the text that
only its finished mechanism puts in that place. ``<meta name="at-most-seconds">`` bounds the real time
of pages with something in them that never ends.
"""
