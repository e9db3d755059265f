"""Every setting, declared once: type, default and help.

A setting is ``[section] key`` in the TOML file and ``PRERENDER_SECTION_KEY`` in the environment.
"""

from ipaddress import ip_network
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator
from yarl import URL

from prerender.config import store_urls
from prerender.config.network_types import (
    BindAddress,
    Endpoint,
    EndpointOrNothing,
    HostList,
    HostNames,
    HostsAtAnyPort,
    Nameservers,
    Networks,
    RedisURLOrNothing,
    SiteURL,
    SiteURLOrNothing,
    StoreURL,
)
from prerender.config.presets import PRESET_WORDS, CrawlerKind, TriggerPreset
from prerender.config.types import (
    AUTO,
    DEFAULT_LANGUAGE,
    EVENTS,
    CdnZone,
    ContentSignal,
    CrawlerRanges,
    Duration,
    Flag,
    HeadTags,
    IndexNowKey,
    Language,
    Languages,
    NamedCrawlers,
    PagePatterns,
    ParameterNames,
    Patterns,
    Port,
    PositiveDuration,
    PositiveSize,
    RequestHeaders,
    Rules,
    SecretNames,
    Selectors,
    SitemapURLs,
    Size,
    SizeOrAuto,
    Timezone,
    Token,
    TokensOrAuto,
    TriggerAction,
    WebhookSecrets,
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
# Campaign and click parameters of advertising networks and mailing services.
TRACKING_PARAMETERS = (
    "utm_*", "gclid", "gclsrc", "gbraid", "wbraid", "dclid", "srsltid", "_ga", "_gl",
    "fbclid", "igsh", "igshid", "msclkid", "yclid", "ysclid", "twclid", "ttclid", "li_fat_id", "epik",
    "mc_cid", "mc_eid", "_hsenc", "_hsmi", "mkt_tok",
)  # fmt: skip

SECRET_PARAMETERS = (
    "*token*", "*secret*", "*passw*", "pwd", "*api_key*", "*api-key*", "*apikey*", "auth",
    "authorization", "*signature*", "sig", "jwt", "*session*", "sid", "otp", "*credential*",
)  # fmt: skip


# The settings that matter first, in the order in which the docs and commands show them.
FIRST = (
    ("origin", "url"),
    ("site", "url"),
    ("triggers", "preset"),
    ("cache", "url"),
    ("cache", "ttl"),
    ("cache", "stale"),
    ("browser", "pages"),
    ("admin", "token"),
)


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class OriginSettings(_Section):
    """The origin: the site's own server."""

    url: SiteURL = Field(
        description="URL of the origin, the site's own server (required).",
        examples=["http://app:3000"],
    )
    connect_timeout: PositiveDuration = Field(
        5,
        description="Maximum time to connect to the origin.",
        examples=["2s"],
    )
    timeout: PositiveDuration = Field(
        60,
        description="Maximum wait for the origin's response headers, and between two reads of "
        "its body.",
        examples=["2m"],
    )
    headers: RequestHeaders = Field(
        (),
        repr=False,
        description="Headers that the proxy adds to its own requests to the origin, those of renders: "
        '["Authorization: Basic dXNlcjpwYXNz", "X-WAF-Token: ..."]. They are not added to requests of '
        "visitors, and not sent to any other host.",
        examples=[["Authorization: Basic dXNlcjpwYXNz"]],
    )

    @property
    def header_pairs(self) -> tuple[tuple[str, str], ...]:
        """The names and values of ``headers``."""
        pairs = (line.partition(": ") for line in self.headers)
        return tuple((name, value) for name, _, value in pairs)


class SiteSettings(_Section):
    """The site as visitors know it."""

    url: SiteURLOrNothing = Field(
        "",
        description="Public URL of the site. Pages are rendered under it. Empty: the origin's URL.",
        examples=["https://www.example.com"],
    )
    hosts: HostsAtAnyPort = Field(
        (),
        description="Other host names that get snapshots of this site. With url set, crawlers that "
        "request any other host are forwarded.",
        examples=[["shop.example.com"]],
    )


class ServerSettings(_Section):
    """The public listener."""

    host: BindAddress = Field(
        "127.0.0.1",
        description="Address to listen on.",
        examples=["0.0.0.0"],  # noqa: S104
    )
    port: Port = Field(8080, description="Port to listen on; 0 picks a free port.", examples=[8090])
    trusted_proxies: Networks = Field(
        tuple(map(ip_network, _PRIVATE)),
        description="Networks of the proxies in front of this one. Their X-Forwarded-* and "
        "Forwarded headers are trusted; those of all other clients are replaced. "
        "Default: loopback and private networks.",
        examples=[["10.0.0.0/8", "192.0.2.7"]],
    )
    header_timeout: PositiveDuration = Field(
        20,
        description="Maximum time a client may take to send its request headers.",
        examples=["10s"],
    )
    body_timeout: PositiveDuration = Field(
        60,
        description="Maximum time between two reads of a request body.",
        examples=["2m"],
    )
    write_timeout: PositiveDuration = Field(
        60,
        description="Maximum time a client may read nothing of its response.",
        examples=["30s"],
    )
    idle_timeout: PositiveDuration = Field(
        75,
        description="Keep-alive timeout of client connections. Set it higher than that of the "
        "proxy in front (nginx: 60s), which then never reuses a connection that is "
        "being closed.",
        examples=["2m"],
    )
    grace: Duration = Field(
        25, description="Maximum time to finish running requests on shutdown.", examples=["40s"]
    )


class AdminSettings(_Section):
    """The admin listener: dashboard, health checks, metrics and purges. Keep it private."""

    host: BindAddress = Field(
        "127.0.0.1",
        description="Address to listen on.",
        examples=["0.0.0.0"],  # noqa: S104
    )
    port: Port = Field(8081, description="Port to listen on; 0 picks a free port.", examples=[9090])
    token_file: str = Field(
        "",
        description="File with tokens of the admin listener, one per line; read again when it changes.",
        examples=["/run/secrets/prerender-admin"],
    )
    token: TokensOrAuto = Field(
        (),
        repr=False,
        validate_default=True,
        description="Token required to use the admin listener, or a list of tokens that are accepted. "
        'May be empty only on a loopback address or with token_file. "auto" makes one at each start '
        "and logs it.",
        examples=["auto"],
    )
    hosts: HostNames = Field(
        (),
        description="Host names under which browsers reach the dashboard, in addition to those "
        "of this machine.",
        examples=[["prerender.internal"]],
    )
    versions: Annotated[int, whole_number(0, 50)] = Field(
        5,
        description="Number of versions kept of each page's text for comparison; 0 keeps none.",
        examples=[20],
    )

    @field_validator("token")
    @classmethod
    def _needed(cls, token: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        host = str(info.data.get("host", "localhost"))
        if not token and not info.data.get("token_file") and not is_loopback(host):
            raise ValueError(
                f"required because [admin] host is {host}: set at least 16 characters, "
                f'"{AUTO}", or token_file'
            )
        return token


class TriggerSettings(_Section):
    """Which crawlers get snapshots of ordinary URLs."""

    preset: TriggerPreset = Field(
        "none",
        description="Crawlers that get snapshots of ordinary URLs. "
        + "; ".join(f'"{name}": {whom}' for name, whom in PRESET_WORDS.items())
        + ".",
        examples=["crawlers"],
    )
    search: Annotated[TriggerAction, CrawlerKind("Search engine", "search")] = Field(
        "preset",
        description='Each class: "preset", "forward" (like visitors), "render", "markdown" or '
        '"refuse" (403). Search engines: Googlebot, bingbot, ...',
        examples=["render"],
    )
    ai_search: Annotated[TriggerAction, CrawlerKind("AI search", "crawlers")] = Field(
        "preset",
        description="AI search engines: OAI-SearchBot, PerplexityBot, ...",
        examples=["render"],
    )
    ai_training: Annotated[TriggerAction, CrawlerKind("AI training", "ai")] = Field(
        "preset",
        description="Crawlers that collect training data: GPTBot, CCBot, ...",
        examples=["refuse"],
    )
    ai_user: Annotated[TriggerAction, CrawlerKind("AI assistant", "crawlers")] = Field(
        "preset",
        description="AI assistants that open a page for a user: ChatGPT-User, Claude-User, ...",
        examples=["markdown"],
    )
    social: Annotated[TriggerAction, CrawlerKind("Link preview", "search")] = Field(
        "preset",
        description="Link previews: facebookexternalhit, Slackbot, ...",
        examples=["render"],
    )
    seo_tool: Annotated[TriggerAction, CrawlerKind("SEO tool", "all")] = Field(
        "preset",
        description="SEO tools: AhrefsBot, Chrome-Lighthouse, ...",
        examples=["forward"],
    )
    archive: Annotated[TriggerAction, CrawlerKind("Archive", "all")] = Field(
        "preset",
        description="Archives: archive.org_bot, ArchiveBox, ...",
        examples=["render"],
    )
    feed: Annotated[TriggerAction, CrawlerKind("Feed reader", "all")] = Field(
        "preset", description="Feed readers: Feedly, FreshRSS, ...", examples=["forward"]
    )
    monitoring: Annotated[TriggerAction, CrawlerKind("Monitoring", None)] = Field(
        "preset",
        description="Uptime and speed checks: UptimeRobot, Pingdom, ... Every preset forwards them, "
        "because a snapshot would hide an outage.",
        examples=["forward"],
    )
    signed: Annotated[TriggerAction, CrawlerKind("Signed agent", None)] = Field(
        "preset",
        description="Agents that sign their requests (Web Bot Auth) and name themselves in no other "
        "way: the agents of ChatGPT and others. No preset renders them, because most drive a browser.",
        examples=["forward"],
    )
    markdown: Flag = Field(
        False,
        description="Serve Markdown to all clients that ask for it (Accept: text/markdown).",
        examples=[True],
    )
    more: NamedCrawlers = Field(
        (),
        description='Additional crawlers, by a name in their User-Agent: [{ class = "social", name = '
        '"ExampleBot" }, ...].',
        examples=[[{"class": "social", "name": "ExampleBot"}]],
    )
    crawlers_file: str = Field(
        "",
        description="TOML file that adds and changes entries of the list of known crawlers "
        "(docs/crawlers.md).",
        examples=["/etc/prerender/crawlers.toml"],
    )
    verify: Flag = Field(
        False,
        description="Verify crawlers by DNS or by published address ranges. Clients that only "
        "pretend to be crawlers are forwarded like visitors.",
        examples=[True],
    )
    renew_ranges: Flag = Field(
        True,
        description="With verify, fetch the address ranges that operators publish every day, for the "
        "crawlers that get snapshots. The requests obey [network].",
        examples=[False],
    )
    verify_signatures: Flag = Field(
        True,
        description="Verify signed requests (Web Bot Auth). The keys of agents are fetched by https, "
        "from hosts that [network] allows.",
        examples=[False],
    )
    ranges: CrawlerRanges = Field(
        (),
        description="Files with published address ranges, reloaded when they change: [{ name = "
        '"GPTBot", file = "/etc/prerender/gptbot.json" }, ...].',
        examples=[[{"name": "GPTBot", "file": "/etc/prerender/gptbot.json"}]],
    )
    nameservers: Nameservers = Field(
        (),
        description='Nameservers for verification: ["10.0.0.2", "127.0.0.1:5353"]. Empty: the '
        "system's nameservers.",
        examples=[["10.0.0.2", "127.0.0.1:5353"]],
    )
    include: PagePatterns = Field(
        (),
        description="Render only pages that match one of these patterns; * matches any text. A pattern "
        "without #! means all states of a page, /#!/shop/* some of the first one. Empty: all pages.",
        examples=[["/shop/*"]],
    )
    exclude: PagePatterns = Field(
        (),
        description="Never render pages that match one of these patterns, as for include; they are "
        "forwarded.",
        examples=[["/account/*", "/#!/account/*", "*?print=1"]],
    )
    robots_opt_out: Flag = Field(
        False,
        description='Forward ugly URLs that robots.txt disallows ("Disallow: '
        '/*_escaped_fragment_").',
        examples=[True],
    )

    @field_validator("verify_signatures")
    @classmethod
    def _needed_by_signed(cls, verify: bool, info: ValidationInfo) -> bool:
        signed = info.data.get("signed", "preset")
        if not verify and signed not in ("preset", "forward"):
            raise ValueError(f'must be true because [triggers] signed = "{signed}"')
        return verify

    @classmethod
    def classes(cls) -> dict[str, CrawlerKind]:
        """The classes of crawlers, by name."""
        fields = cls.model_fields.items()
        return {
            name: one
            for name, field in fields
            for one in field.metadata
            if isinstance(one, CrawlerKind)
        }

    @field_validator("more")
    @classmethod
    def _known(cls, more: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        # Signed agents are known by their keys.
        allowed = [one for one in cls.classes() if one != "signed"]
        for known, _ in more:
            if known not in allowed:
                raise ValueError(f"{known!r} is not a class: give one of {', '.join(allowed)}")
        return more


class DropInSettings(_Section):
    """Drop-in replacement for Prerender and Rendertron: GET /https://www.example.com/page."""

    enabled: Flag = Field(
        False,
        description="Accept requests of the middlewares of Prerender and Rendertron, which "
        "carry the whole URL of a page.",
        examples=[True],
    )
    token: Token = Field(
        "",
        repr=False,
        description="Token that middlewares must send as X-Prerender-Token. Empty: none required.",
        examples=["a-token-of-your-own"],
    )
    hosts: HostList = Field(
        (),
        description="Other host names of the site. Their pages are those of [site] url; all "
        "other hosts get a 403.",
        examples=[["shop.example.com"]],
    )


class CacheSettings(_Section):
    """Where snapshots are stored, and for how long."""

    url: StoreURL = Field(
        "memory://",
        repr=False,
        description=f"The store: {store_urls.forms()}; aiocache:// is any backend of aiocache.",
        examples=["s3://bucket/prefix?region=eu-central-1"],
    )
    hot_url: RedisURLOrNothing = Field(
        "",
        repr=False,
        description="A Redis in front of the object store, for recently requested snapshots and for "
        "leases, by which replicas render each page once.",
        examples=["redis://user:password@redis:6379/0"],
    )
    ttl: Duration = Field(
        3600, description="Time to live of a snapshot; 0 disables caching.", examples=["1d"]
    )
    error_ttl: Duration = Field(
        60,
        description="Maximum time to live of the snapshot of a missing page (403, 404, 410).",
        examples=["5m"],
    )
    rules: Rules = Field(
        (),
        description="Time to live by page; the first matching rule applies: [{ path = "
        '"/news/*", ttl = "5m" }, { path = "/#!/my/*", ttl = "never" }].',
        examples=[[{"path": "/news/*", "ttl": "5m"}, {"path": "/live", "ttl": "never"}]],
    )
    page_ttl: Flag = Field(
        False,
        description="Let pages set their own time to live in seconds: <meta "
        "name=prerender-cache-ttl>.",
        examples=[True],
    )
    obey_origin: Flag = Field(
        True,
        description="Do not store pages whose Cache-Control says no-store or private.",
        examples=[False],
    )
    stale: Duration = Field(
        0,
        description="How long an expired snapshot is still served while a new one is rendered "
        "(stale-while-revalidate).",
        examples=["1h"],
    )
    stale_if_error: Duration = Field(
        86400,
        description="How long an expired snapshot is still served when rendering fails "
        "(stale-if-error).",
        examples=["7d"],
    )
    refresh: Annotated[float, share()] = Field(
        0.0,
        description="Share of the pages of the browser that may render popular snapshots again before "
        "they expire, from 0 (never) to 1. Only while no other render waits and the CPUs are not busy.",
        examples=[0.25],
    )
    refresh_before: PositiveDuration = Field(
        600,
        description="How long before it expires a popular snapshot is rendered again; at most half "
        "its time to live.",
        examples=["30m"],
    )
    revalidate: Flag = Field(
        False,
        description="Renew an expired snapshot without rendering it if nothing that its page requested "
        "has changed.",
        examples=[True],
    )
    revalidate_post: PagePatterns = Field(
        (),
        description="POST requests of pages to the site that only read, such as queries of GraphQL, by "
        'path and query: ["/graphql"]. With revalidate, they are repeated with the same body.',
        examples=[["/graphql", "/api/search*"]],
    )
    max_age_without_render: PositiveDuration = Field(
        86400,
        description="How long after its render a snapshot may be renewed without rendering it again.",
        examples=["12h"],
    )
    deploys: Flag = Field(
        False,
        description="Detect deploys: when a page loads other scripts or styles than before, "
        "treat the snapshots of all pages with the old ones as stale.",
        examples=[True],
    )
    tracking_parameters: ParameterNames = Field(
        TRACKING_PARAMETERS,
        description="Query parameters that do not change a page; they are removed from the "
        "cache key.",
        examples=[["utm_*", "ref"]],
    )
    vary: Annotated[tuple[str, ...], words("device", "language")] = Field(
        (),
        description='Separate snapshots by "device" (phone or desktop), "language", or both. '
        "Each multiplies renders and storage.",
        examples=[["device", "language"]],
    )
    languages: Languages = Field(
        (),
        validate_default=True,
        description='Languages to render with vary = ["language"], the default first: ["en", '
        '"de", "fr-CH"].',
        examples=[["en", "de", "fr-CH"]],
    )
    max_bytes: Size = Field(
        256 * 1024**2, description="Maximum memory for snapshots.", examples=["1GiB"]
    )
    file_max_bytes: Size = Field(
        2 * 1024**3,
        description="Maximum disk space for snapshots (file://).",
        examples=["20GiB"],
    )
    timeout: PositiveDuration = Field(
        0.5,
        description="Maximum time of an operation of Redis or of another aiocache backend; then the "
        "page is rendered. For files and object stores it is at least 2s.",
        examples=["200ms"],
    )

    @field_validator("hot_url")
    @classmethod
    def _in_front_of_an_object_store(cls, hot_url: str, info: ValidationInfo) -> str:
        kind = store_urls.kind_of(info.data.get("url", ""))
        if hot_url and kind is not None and not kind.may_have_redis:
            raise ValueError(
                "has no effect unless url is an object store, such as s3://bucket/prefix"
            )
        return hot_url

    @field_validator("languages")
    @classmethod
    def _fits_vary(cls, languages: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        by_language = "language" in info.data.get("vary", ())
        if by_language and not languages:
            raise ValueError('give the languages, since vary has "language"')
        if languages and not by_language and "vary" in info.data:
            raise ValueError('has no effect unless vary contains "language"')
        return languages


class BrowserSettings(_Section):
    """Headless Chromium."""

    path: str = Field(
        "",
        description="Path of the headless shell of Chromium. Empty: chromium-headless-shell or "
        "chrome-headless-shell in PATH. A full Chrome is not supported.",
        examples=["/usr/bin/chromium-headless-shell"],
    )
    pages: Annotated[int | Literal["auto"], whole_number(1, 256, word="auto")] = Field(
        "auto",
        description='Pages rendered at the same time; "auto": four per CPU of the container, if its '
        "memory suffices for them.",
        examples=[8],
    )
    queue: Annotated[int, whole_number(0, 100_000)] = Field(
        100,
        description="Renders that may wait for a page; further requests get a 503.",
        examples=[500],
    )
    max_renders: Annotated[int, whole_number(0, 10**9)] = Field(
        10_000,
        description="Replace the browser after this many renders; 0: no limit.",
        examples=[2000],
    )
    max_memory: SizeOrAuto = Field(
        "auto",
        description="Maximum memory of all Chromium processes. Above it the largest page is "
        "closed; a browser that stays above three quarters of it is replaced. 0: no limit, "
        '"auto": 512 MiB plus 256 MiB for each page, but no more than the proxy leaves of the memory '
        "limit of the container (without one, of half of the machine's memory).",
        examples=["2GiB"],
    )
    sandbox: Literal["auto", "on", "off"] = Field(
        "auto",
        description='"auto": Chromium\'s sandbox is on where possible and off, with a warning, '
        'where not (as root). "on" refuses to start without it.',
        examples=["on"],
    )
    timezone: Timezone = Field(
        "UTC",
        description="Time zone of pages, a name of the IANA database. Visitors see times in their own.",
        examples=["Europe/Paris"],
    )
    language: Language = Field(
        DEFAULT_LANGUAGE,
        description="Language of pages, a tag such as de-CH: their Accept-Language, "
        'navigator.language, and formats of dates and numbers. With [cache] vary = ["language"], pages '
        "have the languages listed there.",
        examples=["fr-CH"],
    )


class RenderSettings(_Section):
    """Limits of a render."""

    timeout: PositiveDuration = Field(
        20,
        description="Maximum time of one render, including the wait for a page.",
        examples=["30s"],
    )
    budget: PositiveDuration = Field(
        10, description="Virtual time that a page's timers may use.", examples=["20s"]
    )
    patience: PositiveDuration = Field(
        4,
        description="Maximum wait for a request to a third party without a response, a long poll or an "
        "optional request. The site's own data and scripts are waited for until timeout.",
        examples=["10s"],
    )
    optional: PagePatterns = Field(
        (),
        description="Requests to the site that a snapshot does not need, by path and query: "
        '["/api/recommendations*", "*/collect?*"]. They are waited for only as long as patience, and '
        "may fail.",
        examples=[["/api/recommendations*", "*/collect?*"]],
    )
    incomplete: Literal["error", "serve"] = Field(
        "error",
        description="Response for a page whose own data is missing or failed, if there is no older "
        'good snapshot. "error": 503 with Retry-After; "serve": the incomplete page with '
        "Cache-Control: no-store. Such a page is never stored.",
        examples=["serve"],
    )
    max_bytes: Size = Field(
        20 * 1024**2,
        description="Maximum size of a snapshot, and of the origin's document.",
        examples=["5MB"],
    )


class NetworkSettings(_Section):
    """What pages may reach while they render. The site itself is always allowed."""

    third_parties: Literal["public", "listed"] = Field(
        "public",
        description='Hosts that pages may reach besides the site. "public": the public Internet'
        ' and the hosts in allow; "listed": only the hosts in allow.',
        examples=["listed"],
    )
    allow: HostList = Field(
        (),
        description="Hosts that pages may reach even on a private address: hosts, domains "
        "(*.example.com) and networks (10.1.0.0/16), each at ports 80 and 443, and origins "
        "(http://app.internal:3001), at any port.",
        examples=[["http://api.internal:3001", "*.cdn.example"]],
    )
    deny: HostList = Field(
        (),
        description="Hosts, domains and networks that pages may not reach. Takes precedence "
        "over allow.",
        examples=[["chat.example"]],
    )
    block_trackers: Flag = Field(
        True,
        description="Block well-known analytics, tag managers, ads and session recorders; list "
        "exceptions in allow.",
        examples=[False],
    )
    block_types: Annotated[tuple[str, ...], words("image", "font", "media")] = Field(
        (),
        description="File types to block: image, font, media. Pages get placeholders instead, whose "
        "dimensions and durations differ.",
        examples=[["font", "media"]],
    )
    max_requests: Annotated[int, whole_number(1, 1_000_000)] = Field(
        1000,
        description="Maximum number of requests of one render.",
        examples=[300],
    )
    max_bytes: PositiveSize = Field(
        100 * 1024**2,
        description="Maximum number of bytes that one render may receive, as transferred.",
        examples=["20MB"],
    )
    max_response_bytes: PositiveSize = Field(
        32 * 1024**2,
        description="Maximum size of one response to a page.",
        examples=["5MB"],
    )
    request_timeout: PositiveDuration = Field(
        15,
        description="Maximum time of one response to a page; event streams and WebSockets may "
        "take longer.",
        examples=["10s"],
    )
    cache_bytes: Size = Field(
        64 * 1024**2,
        description="Maximum memory for scripts, styles, images and fonts that renders share, as"
        " far as their HTTP headers allow; 0 disables it.",
        examples=["256MiB"],
    )


class SnapshotSettings(_Section):
    """What a snapshot contains."""

    flatten_shadow_dom: Flag = Field(
        False,
        description="Serialize shadow DOM as ordinary elements instead of declarative shadow DOM.",
        examples=[True],
    )
    add_canonical: Flag = Field(
        False,
        description="Add a canonical link with the pretty URL to pages that have none.",
        examples=[True],
    )
    moved: Literal["canonical", "redirect", "keep"] = Field(
        "canonical",
        description="What to do with a page that changes its own URL while it loads (history API): "
        "add a canonical link to the new URL, redirect there (302), or keep it as it is.",
        examples=["redirect"],
    )
    soft_404: Flag = Field(
        False,
        description="Respond 404 for a page that says 200 although its own data was answered with 404 "
        "or 410 (a soft 404).",
        examples=[True],
    )
    volatile: Patterns = Field(
        (),
        description="Regular expressions of content that differs on every load (nonces, tokens,"
        " times) and does not change a snapshot's ETag.",
        examples=[["build [0-9]+"]],
    )
    remove: Selectors = Field(
        (),
        description="CSS selectors of elements that snapshots lack, such as consent banners and chat: "
        '["#cookie-banner", "[id^=chat-]"]. They also match in shadow roots. html, head and body are '
        "never removed. Snapshots say so in X-Prerender-Changes.",
        examples=[["#cookie-banner", ".chat"]],
    )
    add: HeadTags = Field(
        (),
        description="HTML of tags that snapshots have at the end of their head: meta, link, style, and "
        "scripts of type application/ld+json.",
        examples=[["<meta name=robots content=noarchive>"]],
    )


class MarkdownSettings(_Section):
    """Markdown for AI agents. See docs/crawlers.md."""

    enabled: Flag = Field(
        False,
        description="Serve each page as Markdown at a URL of its own, /page.md (/index.md for /), and "
        "name it in a Link header of the page. Also serve /llms.txt and /llms-full.txt. A file that "
        "the origin has at such a URL is forwarded.",
        examples=[True],
    )
    content_signal: ContentSignal = Field(
        "",
        description="Content-Signal header of Markdown, what it may be used for: "
        '"search=yes, ai-input=yes, ai-train=no" (https://contentsignals.org).',
        examples=["search=yes, ai-input=yes, ai-train=no"],
    )


class IndexNowSettings(_Section):
    """Submits changed pages to search engines (https://www.indexnow.org)."""

    key: IndexNowKey = Field(
        "",
        description="Your IndexNow key, served at /<key>.txt. Empty: IndexNow is off.",
        examples=["b3f1c2d4e5f60718"],
    )
    endpoint: Endpoint = Field(
        "https://api.indexnow.org/indexnow",
        description="IndexNow endpoint, which informs all participating search engines.",
        examples=["https://www.bing.com/indexnow"],
    )
    interval: PositiveDuration = Field(
        60,
        description="Minimum time between two submissions; changes are collected meanwhile.",
        examples=["10m"],
    )


class CdnSettings(_Section):
    """Keeps a CDN in step: tags on snapshots, and purges that reach it."""

    provider: Literal["none", "fastly", "cloudflare"] = Field(
        "none",
        description='CDN that gets purges by its API: "fastly" or "cloudflare".',
        examples=["fastly"],
    )
    zone: CdnZone = Field(
        "",
        description="ID of the Fastly service, or of the Cloudflare zone.",
        validate_default=True,
        examples=["SU1Z0isxPaozGVKXdv0eY"],
    )
    token_file: str = Field(
        "",
        description="File with the API token; read again when it changes.",
        examples=["/run/secrets/cdn-token"],
    )
    token: Token = Field(
        "",
        repr=False,
        validate_default=True,
        description="API token that may purge. Set it or token_file.",
        examples=["a-token-of-the-cdn-that-may-purge"],
    )
    header: Literal["auto", "Cache-Tag", "Surrogate-Key"] = Field(
        "auto",
        description='Response header with the tags of a snapshot. "auto": that of the provider, none '
        "without one.",
        examples=["Surrogate-Key"],
    )
    endpoint: EndpointOrNothing = Field(
        "",
        description="URL of the API. Empty: that of the provider.",
        examples=["http://127.0.0.1:8099/client/v4"],
    )

    @field_validator("zone", "token")
    @classmethod
    def _needed(cls, value: str, info: ValidationInfo) -> str:
        with_api = info.data.get("provider", "none") != "none"
        if with_api and not value and not info.data.get("token_file"):
            also = ": set it or token_file" if info.field_name == "token" else ""
            raise ValueError(f"required because provider is set{also}")
        return value


class SitemapSettings(_Section):
    """Renders new and changed pages of the site's sitemaps in advance, with spare browser capacity."""

    watch: Flag = Field(
        False,
        description="Read the sitemaps regularly, one replica for all, render pages that are new or "
        "have another lastmod, and drop the snapshots of pages that are no longer listed.",
        examples=[True],
    )
    urls: SitemapURLs = Field(
        (),
        description="The sitemaps, as URLs of the site or as paths. Empty: those that robots.txt "
        "names, or /sitemap.xml.",
        examples=[["/sitemap.xml", "/news/sitemap.xml"]],
    )
    interval: PositiveDuration = Field(
        3600,
        description="Time between two readings.",
        examples=["10m"],
    )


class VisitSettings(_Section):
    """What crawlers got, by day and by page, for the report. Stored next to the snapshots."""

    days: Annotated[int, whole_number(0, 3650)] = Field(
        730,
        description="For how many days the figures are kept; 0: none are.",
        examples=[365],
    )


class WebhookSettings(_Section):
    """Sends events and alerts to a URL of yours (https://www.standardwebhooks.com)."""

    url: EndpointOrNothing = Field(
        "",
        description="URL that receives a POST request for each event. Empty: nothing is sent.",
        examples=["https://hooks.example.com/prerender"],
    )
    events: Annotated[tuple[str, ...], words(*EVENTS)] = Field(
        ("alert",),
        description=f"What is sent: {', '.join(EVENTS)}.",
        examples=[["alert", "snapshot.changed", "page.not_found"]],
    )
    secret: WebhookSecrets = Field(
        (),
        repr=False,
        validate_default=True,
        description='Secret that signs the requests: "whsec_" and 24 to 64 bytes in Base64. A list of '
        "secrets gives several signatures, to change it without a gap.",
        examples=["whsec_Y2hhbmdlIG1lOiAzMiByYW5kb20gYnl0ZXMgaGVyZSE="],
    )

    @field_validator("secret")
    @classmethod
    def _needed(cls, secret: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if info.data.get("url") and not secret:
            raise ValueError(
                "required because url is set: the output of echo whsec_$(openssl rand -base64 32)"
            )
        return secret


class LogSettings(_Section):
    """Log on standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        "info",
        description="Minimum level of log messages.",
        examples=["debug"],
    )
    format: Literal["console", "json"] = Field(
        "console",
        description='Format of log lines: "console" for people, "json" for machines.',
        examples=["json"],
    )
    access: Literal["all", "snapshots", "none"] = Field(
        "all",
        description='Requests in the access log. "snapshots": all but forwarded ones. '
        "Independent of level.",
        examples=["snapshots"],
    )
    secrets: SecretNames = Field(
        SECRET_PARAMETERS,
        description="Query parameters whose values are masked in logs and traces, "
        "case-insensitive; * matches any text.",
        examples=[["*token*", "key"]],
    )


class TracingSettings(_Section):
    """OpenTelemetry spans. Requires: pip install 'prerender-proxy[otel]'."""

    endpoint: EndpointOrNothing = Field(
        "",
        description="OTLP/HTTP endpoint for spans, for example "
        '"http://127.0.0.1:4318/v1/traces". Empty: tracing is off.',
        examples=["http://127.0.0.1:4318/v1/traces"],
    )
    sample: Annotated[float, share()] = Field(
        1.0,
        description="Share of requests that start a trace if they have none, from 0 to 1.",
        examples=[0.1],
    )


class Settings(_Section):
    """All settings. Immutable: changes require a restart."""

    origin: OriginSettings
    site: SiteSettings = SiteSettings()
    server: ServerSettings = ServerSettings()
    admin: AdminSettings = AdminSettings()
    triggers: TriggerSettings = TriggerSettings()
    drop_in: DropInSettings = DropInSettings()
    cache: CacheSettings = CacheSettings()
    browser: BrowserSettings = BrowserSettings()
    render: RenderSettings = RenderSettings()
    network: NetworkSettings = NetworkSettings()
    snapshot: SnapshotSettings = SnapshotSettings()
    markdown: MarkdownSettings = MarkdownSettings()
    indexnow: IndexNowSettings = IndexNowSettings()
    cdn: CdnSettings = CdnSettings()

    sitemaps: SitemapSettings = SitemapSettings()
    visits: VisitSettings = VisitSettings()
    webhooks: WebhookSettings = WebhookSettings()
    log: LogSettings = LogSettings()
    tracing: TracingSettings = TracingSettings()

    @property
    def origin_url(self) -> URL:
        """The URL of the origin."""
        return URL(self.origin.url)

    @property
    def public_url(self) -> URL:
        """The site's public URL, without a path."""
        return URL(self.site.url or self.origin.url)
