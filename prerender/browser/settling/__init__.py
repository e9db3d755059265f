"""Settling: waiting in virtual time until a page is complete.

``settler.py`` executes steps and observes the page; ``decision.py`` decides which step is next and when
the page has settled.

In virtual time, a page's timers fire as fast as the CPU allows, and the clock waits for the network.
It is granted in slices. Between slices, the probe (probe.py) reports pending work that virtual time
does not cover. Work outside the page's thread (workers, databases, sockets) takes real time, so both
clocks advance together while some is pending.

The browser draws no frames by itself. One is requested if the probe reports something that waits for a
frame: a layout observer, an animation, lazy content.

Endless work must not hold the page: event streams, requests that have long been silent, intervals,
animation loops, and silent sockets.
"""
