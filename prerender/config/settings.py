"""Every setting, declared once: default, check and help.

A setting is ``[section] key`` in the TOML file and ``PRERENDER_SECTION_KEY`` in the environment.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from yarl import URL

from prerender.config.types import (
    Address,
    Duration,
    Flag,
    HostList,
    Patterns,
    Port,
    PositiveDuration,
    PositiveSize,
    SiteURL,
    SiteURLOrNothing,
    Size,
    whole_number,
    words,
)


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Origin(_Section):
    """The site's own server."""

    url: SiteURL = Field(description="Where the site's own server listens (required).")
    connect_timeout: PositiveDuration = Field(5, description="Longest wait for a connection.")
    timeout: PositiveDuration = Field(
        60, description="Longest silence of the origin while it answers a request."
    )


class Site(_Section):
    """The site as its visitors know it."""

    url: SiteURLOrNothing = Field(
        "", description="The public URL. Pages are rendered under it. Empty: the origin's."
    )


class Server(_Section):
    """The public listener."""

    host: Address = Field("127.0.0.1", description="Address to listen on.")
    port: Port = Field(8080, description="Port to listen on; 0 takes a free one.")
    grace: Duration = Field(
        25, description="How long a shutdown waits for running requests to finish."
    )


class Admin(_Section):
    """The listener for health checks. Keep it off the public network."""

    host: Address = Field("127.0.0.1", description="Address to listen on.")
    port: Port = Field(8081, description="Port to listen on; 0 takes a free one.")


class Cache(_Section):
    """Where snapshots are kept."""

    ttl: Duration = Field(3600, description="How long a snapshot is fresh; 0 keeps none.")
    max_bytes: Size = Field(256 * 1024**2, description="Bound of the memory that snapshots take.")


class Browser(_Section):
    """Headless Chromium."""

    path: str = Field("", description="The program. Empty: looked for under its usual names.")
    pages: Annotated[int | Literal["auto"], whole_number(1, 256, word="auto")] = Field(
        "auto", description='Pages rendered at once; "auto": two for each CPU of the container.'
    )
    queue: Annotated[int, whole_number(0, 100_000)] = Field(
        100, description="Renders that may wait for a page; more get a 503."
    )
    sandbox: Literal["auto", "on", "off"] = Field(
        "auto",
        description='"auto": on where it can be, off with a warning where it cannot (as root).',
    )


class Render(_Section):
    """How long a page may take."""

    timeout: PositiveDuration = Field(
        20, description="Wall-clock limit of one render, its wait for a page included."
    )
    budget: PositiveDuration = Field(
        10, description="Virtual time that a page's timers may use before it is taken as done."
    )
    patience: PositiveDuration = Field(
        4,
        description="How long a request of the page may be silent and still be waited for; "
        "raise it for slow interfaces.",
    )
    max_bytes: Size = Field(20 * 1024**2, description="Largest snapshot, and largest document.")


class Network(_Section):
    """What pages may reach while they are rendered. The site itself they always may."""

    third_parties: Literal["public", "listed"] = Field(
        "public",
        description='Who else. "public": the public Internet and those in allow; "listed": only those.',
    )
    allow: HostList = Field(
        (),
        description="Who may be reached even on a private address: hosts, domains (*.example.com), "
        "networks (10.1.0.0/16), origins (http://app.internal:3001; only these name other ports).",
    )
    deny: HostList = Field(
        (), description="Who is left out: hosts, domains and networks. Goes before allow."
    )
    block_trackers: Flag = Field(
        True,
        description="Leave out analytics, tag managers, ads and session recorders that are well known; "
        "allow brings single ones back.",
    )
    block_types: Annotated[tuple[str, ...], words("image", "font", "media")] = Field(
        (),
        description="Kinds of files to leave out, of image, font and media. Pages get stand-ins, which "
        "have other sizes and lengths.",
    )
    max_requests: Annotated[int, whole_number(1, 1_000_000)] = Field(
        1000, description="Requests that one render may make; more are refused."
    )
    max_bytes: PositiveSize = Field(
        100 * 1024**2, description="Bytes that one render may receive, as they are sent."
    )
    max_response_bytes: PositiveSize = Field(
        32 * 1024**2, description="Bytes of one answer to a page."
    )
    request_timeout: PositiveDuration = Field(
        15, description="How long one answer to a page may take; streams and sockets may go on."
    )
    cache_bytes: Size = Field(
        64 * 1024**2,
        description="Bound of the memory for scripts, styles, images and fonts that renders share as "
        "their HTTP headers allow; 0 keeps none.",
    )


class Snapshot(_Section):
    """What is made of the finished page."""

    flatten_shadow_dom: Flag = Field(
        False,
        description="Shadow DOM as ordinary elements instead of declarative shadow DOM.",
    )
    remove_event_handlers: Flag = Field(
        False, description="Leave out inline handlers such as onclick; scripts always are."
    )
    canvas_images: Flag = Field(False, description="Canvases as pictures of what is drawn on them.")
    add_canonical: Flag = Field(
        False, description="Name the pretty URL as canonical where a page names none."
    )
    volatile: Patterns = Field(
        (),
        description="Regular expressions of what differs on every load (nonces, tokens, times) and "
        "does not make a snapshot a new one for conditional requests.",
    )


class Log(_Section):
    """What is written to standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least level that is written."
    )
    format: Literal["console", "json"] = Field("console", description="How a line looks.")


class Settings(_Section):
    """All of them. Frozen: a change of settings is a restart."""

    origin: Origin
    site: Site = Site()
    server: Server = Server()
    admin: Admin = Admin()
    cache: Cache = Cache()
    browser: Browser = Browser()
    render: Render = Render()
    network: Network = Network()
    snapshot: Snapshot = Snapshot()
    log: Log = Log()

    @property
    def origin_url(self) -> URL:
        """Where the site's own server listens."""
        return URL(self.origin.url)

    @property
    def public_url(self) -> URL:
        """The site's public URL, without a path."""
        return URL(self.site.url or self.origin.url)
