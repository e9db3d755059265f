"""What `auto` in [browser] of the settings stands for: pages, memory, a sandbox."""

import os

import psutil
import structlog

from prerender.browser import chromium, container
from prerender.browser.supervisor import Limits
from prerender.config import Settings
from prerender.errors import ConfigError

# Pages also wait for responses: three leave a tenth of the CPU time unused.
_PAGES_PER_CPU = 4
# A browser is restarted at this age, which bounds slow leaks.
_OLDEST_SECONDS = 6 * 3600.0
# Memory limits of a browser and of each of its pages: about twice the measured usage.
_BROWSER_BYTES = 512 * 1024**2
_PAGE_BYTES = 256 * 1024**2
# Of the proxy itself: its code, and what it remembers of clients. Without its caches.
_PROXY_BYTES = 164 * 1024**2

log = structlog.get_logger(__name__)


def sandbox(settings: Settings, *, serves: bool) -> bool:
    """Whether Chromium is sandboxed. ``serves``: a missing sandbox is logged. Raises ConfigError."""
    wanted = settings.browser.sandbox
    problem = chromium.sandbox_problem()
    if wanted == "on" and problem:
        raise ConfigError([f'[browser] sandbox: "on", but {problem}; give "auto" or "off"'])
    if wanted == "auto" and problem and serves:
        log.warning(
            "sandbox_unavailable",
            reason=problem,
            consequence="Chromium runs without its sandbox",
            remedy=chromium.SANDBOX_REMEDY,
        )
    return wanted != "off" and not problem


def page_count(settings: Settings) -> int:
    """The number of pages that are rendered concurrently."""
    pages = settings.browser.pages
    if pages != "auto":
        return pages
    fitting = (_memory_left(settings) - _BROWSER_BYTES) // _PAGE_BYTES
    return max(1, min(round(_PAGES_PER_CPU * _cpus()), fitting))


def limits(settings: Settings) -> Limits:
    """When a browser is replaced, and how much memory all may use."""
    browser = settings.browser
    memory = browser.max_memory
    if memory == "auto":
        memory = _usual_memory(settings)
    return Limits(browser.max_renders, _OLDEST_SECONDS, memory)


def _usual_memory(settings: Settings) -> int:
    usual = _BROWSER_BYTES + _PAGE_BYTES * page_count(settings)
    return max(_BROWSER_BYTES, min(usual, _memory_left(settings)))


def _memory_left(settings: Settings) -> int:
    """The bytes that the container has for browsers beside the proxy; without a limit, half of the
    machine is for other programs."""
    machine, limit = psutil.virtual_memory().total, container.memory_limit()
    # Version 1 has a huge number for no limit.
    limit = limit if 0 < limit < machine else machine // 2
    cache = settings.cache.max_bytes
    return limit - _PROXY_BYTES - cache - cache // 8 - settings.network.cache_bytes


def _cpus() -> float:
    """The CPUs that this process may use: its affinity, or its cgroup's quota if that is lower."""
    cpus = float(len(os.sched_getaffinity(0)))
    return min(cpus, container.cpu_quota() or cpus)
