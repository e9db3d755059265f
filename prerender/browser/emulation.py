"""Emulated properties of a page: device, window and languages.

The user agent carries the page's number.
"""

from dataclasses import dataclass
from typing import Any

from prerender.browser.devtools import Session
from prerender.config.types import DEFAULT_LANGUAGE
from prerender.gateway.gateway import number_user_agent
from prerender.gateway.navigation import of_phone
from prerender.snapshots.variants import ORDINARY, Variant


@dataclass(frozen=True, slots=True)
class Window:
    """A window in CSS pixels; ``scale``: device pixels per CSS pixel."""

    width: int
    height: int
    scale: float = 1
    mobile: bool = False

    def metrics(self, height: int) -> dict[str, Any]:
        """What Emulation.setDeviceMetricsOverride makes it of, with another height."""
        return {
            "width": self.width,
            "height": height,
            "deviceScaleFactor": self.scale,
            "mobile": self.mobile,
        }


# The variant that a new page is of.
AS_OPENED = ORDINARY.speaking(DEFAULT_LANGUAGE)
DESKTOP = Window(1280, 1024)
# The phone of Lighthouse; Googlebot's is similar.
MOBILE = Window(412, 823, 1.75, mobile=True)


def window_of(variant: Variant) -> Window:
    """The window that a variant is rendered in."""
    return MOBILE if variant.device == "mobile" else DESKTOP


async def become(session: Session, variant: Variant) -> None:
    """Set up a new page for a variant with a language, except for its user agent."""
    # The locale formats dates and numbers.
    await session.call("Emulation.setLocaleOverride", locale=variant.language)
    if variant.device == "mobile":
        await session.call("Emulation.setTouchEmulationEnabled", enabled=True, maxTouchPoints=5)
        await session.call("Emulation.setDeviceMetricsOverride", **MOBILE.metrics(MOBILE.height))


def user_agent_override(
    user_agent: str, number: int, variant: Variant = AS_OPENED
) -> dict[str, Any]:
    """Parameters of Emulation.setUserAgentOverride: an ordinary Chrome, with the page's number.

    ``variant``: with a language.
    """
    mobile = variant.device == "mobile"
    reduced = _reduced(user_agent)
    major = reduced.partition("Chrome/")[2].partition(".")[0]
    brands = [{"brand": "Chromium", "version": major}]
    override: dict[str, Any] = {
        "userAgent": number_user_agent(of_phone(reduced) if mobile else reduced, number),
        "userAgentMetadata": {
            "brands": brands,
            "fullVersionList": brands,
            "platform": "Android" if mobile else "Linux",
            "platformVersion": "",
            "architecture": "" if mobile else "x86",
            "model": "",
            "mobile": mobile,
        },
    }
    if mobile:
        override["platform"] = "Linux armv81"
    # Chromium adds the weights in the header. Without this, it has one language, and sends none.
    override["acceptLanguage"] = ",".join(variant.languages)
    return override


def _reduced(user_agent: str) -> str:
    """The user agent of an ordinary Chrome of the same major version."""
    honest = user_agent.replace("HeadlessChrome", "Chrome")
    version = honest.partition("Chrome/")[2].partition(" ")[0]
    return honest.replace(version, f"{version.partition('.')[0]}.0.0.0")
