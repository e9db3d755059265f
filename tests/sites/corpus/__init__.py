"""Small pages that each finish late by one mechanism, and the origin that serves them (origin.py).

Each page starts with ``<p id="out">waiting</p>``; ``<meta name="expected">`` has the text that only
its finished mechanism puts there. ``<meta name="at-most-seconds">`` limits the real time of pages
with something endless.
"""
