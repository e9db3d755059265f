"""Settling: waiting in virtual time until a page is complete.

``decision.py`` has the rules and decides which step is next; ``settler.py`` executes the steps and
observes the page, whose requests it knows as a ``NetworkView`` (observation.py).

In virtual time, a page's timers fire as fast as the CPU allows, and the clock waits for the network.
It is granted in slices. Between slices, the probe (probe.py) reports pending work that virtual time
does not cover. Work outside the page's thread (workers, databases, sockets) takes real time, so both
clocks advance together while some is pending.
"""
