"""Every setting, declared once: default, check and help.

A setting is ``[section] key`` in the TOML file and ``PRERENDER_SECTION_KEY`` in the environment.
"""

from ipaddress import ip_network
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator
from yarl import URL

from prerender.config.places import (
    Address,
    Endpoint,
    EndpointOrNothing,
    HostList,
    HostNames,
    Nameservers,
    Networks,
    SiteURL,
    SiteURLOrNothing,
    StoreURL,
)
from prerender.config.types import (
    CrawlerNames,
    CrawlerRanges,
    Duration,
    Flag,
    IndexNowKey,
    Languages,
    PagePatterns,
    Parameters,
    Patterns,
    Port,
    PositiveDuration,
    PositiveSize,
    Rules,
    SecretNames,
    Size,
    SizeOrAuto,
    Token,
    TriggerAction,
    share,
    whole_number,
    words,
)
from prerender.urls.hosts import is_loopback

_PRIVATE = (
    "127.0.0.0/8",
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "::1/128",
    "fc00::/7",
)
# Of campaigns and clicks, as the big networks and mailers add them.
TRACKING_PARAMETERS = (
    "utm_*", "gclid", "gclsrc", "gbraid", "wbraid", "dclid", "srsltid", "_ga", "_gl",
    "fbclid", "igsh", "igshid", "msclkid", "yclid", "ysclid", "twclid", "ttclid", "li_fat_id", "epik",
    "mc_cid", "mc_eid", "_hsenc", "_hsmi", "mkt_tok",
)  # fmt: skip

SECRET_PARAMETERS = (
    "*token*", "*secret*", "*passw*", "pwd", "*api_key*", "*api-key*", "*apikey*", "auth",
    "authorization", "*signature*", "sig", "jwt", "*session*", "sid", "otp", "*credential*",
)  # fmt: skip


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Origin(_Section):
    """The site's own server."""

    url: SiteURL = Field(description="Where the site's own server listens (required).")
    connect_timeout: PositiveDuration = Field(5, description="Longest wait for a connection.")
    timeout: PositiveDuration = Field(
        60,
        description="Longest wait for the head of an answer, and longest silence within its body.",
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
    trusted_proxies: Networks = Field(
        tuple(map(ip_network, _PRIVATE)),
        description="Networks of the proxies in front of this one, whose X-Forwarded-* and Forwarded "
        "are believed; from all others they are set anew. The default: loopback and private ones.",
    )
    header_timeout: PositiveDuration = Field(
        20, description="How long a client may take to send the head of a request."
    )
    body_timeout: PositiveDuration = Field(
        60, description="Longest silence of a client while it sends the body of a request."
    )
    write_timeout: PositiveDuration = Field(
        60, description="How long a client may take nothing of an answer that is being sent."
    )
    idle_timeout: PositiveDuration = Field(
        75,
        description="How long a connection is kept for the next request. Longer than the proxy in "
        "front keeps it (nginx: 60s), so that this one never sends into a closed one.",
    )
    grace: Duration = Field(
        25, description="How long a shutdown waits for running requests to finish."
    )


class Admin(_Section):
    """The listener for the dashboard, health checks, metrics and purges. Not for the public."""

    host: Address = Field("127.0.0.1", description="Address to listen on.")
    port: Port = Field(8081, description="Port to listen on; 0 takes a free one.")
    token: Token = Field(
        "",
        repr=False,
        validate_default=True,
        description="What who uses it has to know. Empty: nothing, which is for loopback addresses "
        "only.",
    )
    hosts: HostNames = Field(
        (), description="Names under which browsers reach it, beside those of this machine itself."
    )
    versions: Annotated[int, whole_number(0, 50)] = Field(
        5, description="Versions of each page whose text is kept, to compare; 0 keeps none."
    )

    @field_validator("token")
    @classmethod
    def _needed(cls, token: str, info: ValidationInfo) -> str:
        host = str(info.data.get("host", "localhost"))
        if not token and not is_loopback(host):
            raise ValueError(f"is needed when host ({host}) is not a loopback address")
        return token


class Triggers(_Section):
    """Who gets a snapshot beside those who ask by ugly URLs. Classes: see the list of crawlers."""

    search: TriggerAction = Field("forward", description="Search engines: Googlebot, bingbot, ...")
    ai_search: TriggerAction = Field(
        "forward", description="Search engines that answer with a text: OAI-SearchBot, ..."
    )
    ai_training: TriggerAction = Field(
        "forward", description="Collectors of texts to train models with: GPTBot, CCBot, ..."
    )
    ai_user: TriggerAction = Field(
        "forward", description="Assistants that were asked about a page: ChatGPT-User, ..."
    )
    social: TriggerAction = Field(
        "forward", description="Makers of link previews: facebookexternalhit, Slackbot, ..."
    )
    seo_tool: TriggerAction = Field(
        "forward", description="Tools that look at sites: AhrefsBot, Chrome-Lighthouse, ..."
    )
    markdown: Flag = Field(
        False,
        description="Pages as Markdown for all who ask for that (Accept: text/markdown).",
    )
    more: CrawlerNames = Field(
        (),
        description='More names in User-Agent: [{ class = "social", name = "ExampleBot" }, ...].',
    )
    verify: Flag = Field(
        False,
        description="Believe the names of crawlers that can be verified only from their own addresses, "
        "by DNS or by ranges. Who uses such a name elsewhere is forwarded as people are.",
    )
    ranges: CrawlerRanges = Field(
        (),
        description="Published addresses of crawlers, in files that are read again when they change: "
        '[{ name = "GPTBot", file = "/etc/prerender/gptbot.json" }, ...].',
    )
    nameservers: Nameservers = Field(
        (),
        description='Where the names of addresses are asked for: ["10.0.0.2", "127.0.0.1:5353"]. '
        "Empty: the system's nameservers.",
    )
    include: PagePatterns = Field(
        (), description="Only pages that match one of these are rendered; * is any text. None: all."
    )
    exclude: PagePatterns = Field(
        (), description="Pages that match one of these are never rendered, but forwarded."
    )
    robots_opt_out: Flag = Field(
        False,
        description='Forward ugly URLs that robots.txt forbids ("Disallow: /*_escaped_fragment_").',
    )


class DropIn(_Section):
    """In the place of Prerender or Rendertron, for their middlewares: GET /https://www.example.com/page."""

    enabled: Flag = Field(
        False, description="Answer middlewares that ask for pages by their whole URLs."
    )
    token: Token = Field(
        "",
        repr=False,
        description="What they have to send as X-Prerender-Token. Empty: nothing.",
    )
    hosts: HostList = Field(
        (),
        description="Other names of the site: pages of theirs are those of [site] url. All other "
        "hosts get a 403.",
    )


class Cache(_Section):
    """Where snapshots are kept, and for how long."""

    url: StoreURL = Field(
        "memory://",
        repr=False,
        description='"memory://", "file:///a/folder", "redis://user:password@host:6379/0", '
        '"rediss://...", "unix:///a/socket?db=0".',
    )
    ttl: Duration = Field(3600, description="How long a snapshot is fresh; 0 keeps none.")
    error_ttl: Duration = Field(
        60, description="How long the snapshot of a missing page (404, 410) is fresh, at most."
    )
    rules: Rules = Field(
        (),
        description="Other times for some pages, the first that matches counts: "
        '[{ path = "/news/*", ttl = "5m" }, { path = "/#!/my/*", ttl = "never" }].',
    )
    page_ttl: Flag = Field(
        False, description="A page may say its own in seconds: <meta name=prerender-cache-ttl>."
    )
    obey_origin: Flag = Field(
        True, description="Keep no page whose Cache-Control says no-store or private."
    )
    stale: Duration = Field(
        0, description="How long after that a snapshot is served while a new one is made."
    )
    stale_if_error: Duration = Field(
        86400, description="How long after that a snapshot is served when no new one can be made."
    )
    deploys: Flag = Field(
        False,
        description="When a page comes with other scripts or styles than last time, take the "
        "snapshots of all pages that had the same ones for stale.",
    )
    tracking_parameters: Parameters = Field(
        TRACKING_PARAMETERS,
        description="Query parameters that make no difference to a page and are left out.",
    )
    vary: Annotated[tuple[str, ...], words("device", "language")] = Field(
        (),
        description="What a page has snapshots of its own for: device (phones, and all others), "
        "language, or both. Each of them multiplies renders and memory.",
    )
    languages: Languages = Field(
        (),
        validate_default=True,
        description="The languages there are then, the first for all who want none of them: "
        '["en", "de", "fr-CH"].',
    )
    max_bytes: Size = Field(256 * 1024**2, description="Bound of the memory that snapshots take.")
    file_max_bytes: Size = Field(
        2 * 1024**3, description="Bound of the disk space that snapshots take (file://)."
    )
    timeout: PositiveDuration = Field(
        0.5, description="Longest wait for Redis before it is done without."
    )

    @field_validator("languages")
    @classmethod
    def _fits_vary(cls, languages: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        by_language = "language" in info.data.get("vary", ())
        if by_language and not languages:
            raise ValueError('give the languages, since vary has "language"')
        if languages and not by_language and "vary" in info.data:
            raise ValueError('they count only if vary has "language"')
        return languages


class Browser(_Section):
    """Headless Chromium."""

    path: str = Field("", description="The program. Empty: looked for under its usual names.")
    pages: Annotated[int | Literal["auto"], whole_number(1, 256, word="auto")] = Field(
        "auto", description='Pages rendered at once; "auto": three for each CPU of the container.'
    )
    queue: Annotated[int, whole_number(0, 100_000)] = Field(
        100, description="Renders that may wait for a page; more get a 503."
    )
    max_renders: Annotated[int, whole_number(0, 10**9)] = Field(
        10_000, description="Renders after which a browser is replaced; 0 stands for no limit."
    )
    max_age: Duration = Field(
        6 * 3600, description="Age at which a browser is replaced; 0 stands for no limit."
    )
    max_memory: SizeOrAuto = Field(
        "auto",
        description="Memory of all processes of a browser at which it is replaced; a page that takes "
        'as much alone is ended. 0 stands for no limit, "auto" for 512 MiB and 256 MiB more for each '
        "page.",
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
        "raise it for slow interfaces. Programs that the page is made of are waited for in any case.",
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


class IndexNow(_Section):
    """Telling search engines which pages have changed (https://www.indexnow.org)."""

    key: IndexNowKey = Field(
        "", description="A key of your own, served at /<key>.txt. Empty: nobody is told anything."
    )
    endpoint: Endpoint = Field(
        "https://api.indexnow.org/indexnow", description="Whom to tell; others are told from there."
    )
    interval: PositiveDuration = Field(
        60, description="How long changes are collected, and the least time between two messages."
    )


class Log(_Section):
    """What is written to standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least level that is written."
    )
    format: Literal["console", "json"] = Field("console", description="How a line looks.")
    access: Literal["all", "snapshots", "none"] = Field(
        "all",
        description="Requests that get a line each, whatever the level; "
        '"snapshots": all but those that are simply forwarded.',
    )
    secrets: SecretNames = Field(
        SECRET_PARAMETERS,
        description="Query parameters whose values are never written, in any case; * is any text.",
    )


class Tracing(_Section):
    """Spans for OpenTelemetry. Needs: pip install 'prerender-proxy[otel]'."""

    endpoint: EndpointOrNothing = Field(
        "",
        description="Where they go by OTLP over HTTP, for example "
        '"http://127.0.0.1:4318/v1/traces". Empty: nowhere.',
    )
    sample: Annotated[float, share()] = Field(
        1.0,
        description="Of the requests that belong to no trace yet, how many begin one: from 0 to 1. "
        "Of the others their sender has decided.",
    )


class Settings(_Section):
    """All of them. Frozen: a change of settings is a restart."""

    origin: Origin
    site: Site = Site()
    server: Server = Server()
    admin: Admin = Admin()
    triggers: Triggers = Triggers()
    drop_in: DropIn = DropIn()
    cache: Cache = Cache()
    browser: Browser = Browser()
    render: Render = Render()
    network: Network = Network()
    snapshot: Snapshot = Snapshot()
    indexnow: IndexNow = IndexNow()
    log: Log = Log()
    tracing: Tracing = Tracing()

    @property
    def origin_url(self) -> URL:
        """Where the site's own server listens."""
        return URL(self.origin.url)

    @property
    def public_url(self) -> URL:
        """The site's public URL, without a path."""
        return URL(self.site.url or self.origin.url)
