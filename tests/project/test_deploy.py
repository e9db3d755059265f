"""The files in deploy/ and those of the containers, tested as far as possible without their
platforms.
"""

import asyncio
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from aiohttp import ClientSession, web

from prerender import __version__
from prerender.browser import container, defaults
from prerender.config import load
from prerender.crawlers.known import built_in
from tests.conftest import Proxy, Site, StartOrigin, StartProxy, pages
from tests.support import nginx_server, raw
from tests.support.commands import ROOT, SEARCHED, answered, in_, running

DEPLOY = ROOT / "deploy"
NGINX_FILES = sorted((DEPLOY / "nginx").glob("*.conf"))
# Without TLS; tests/project/test_nginx_tls.py has the other.
PLAIN_FILES = [file for file in NGINX_FILES if file.stem != "tls"]
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
UNIT = DEPLOY / "systemd" / "prerender.service"
WORKFLOWS = ROOT / ".github/workflows"
HOST = "www.example.com:8000"
NOT_KEPT = "no-cache, max-age=0"
SAID_BY_PROXIES = (
    "Forwarded", "X-Forwarded-By", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Port",
    "X-Forwarded-Prefix", "X-Forwarded-Proto", "X-Forwarded-Server", "X-Forwarded-Ssl", "X-Real-IP",
)  # fmt: skip
BROWSER = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/149.0.0.0"
PAGE = "<p>plain<script>document.write('+')</script>"


def text_of(file: Path) -> str:
    return file.read_text("utf-8")


def compose(profile: str) -> dict[str, Any]:
    """The services that Docker Compose starts with a profile."""
    # Without variables of the user's.
    text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text_of(ROOT / "docker-compose.yml"))
    services = yaml.safe_load(text)["services"].items()
    return {
        name: service for name, service in services if profile in service.get("profiles", [profile])
    }


def dockerfile() -> str:
    return (ROOT / "Dockerfile").read_text("utf-8").replace("\\\n", "")


def set_in_the_image() -> dict[str, str]:
    return dict(re.findall(r"(PRERENDER_\w+)=(\S+)", dockerfile()))


@pytest.mark.parametrize(
    ("schema", "file"),
    [
        ("compose-spec", "docker-compose.yml"),
        ("github-workflows", ".github/workflows/ci.yml"),
        ("github-workflows", ".github/workflows/release.yml"),
    ],
)
def test_files_are_as_their_schemas_say(schema: str, file: str) -> None:
    programs = Path(sys.executable).parent
    in_(ROOT, programs / "check-jsonschema", "--builtin-schema", f"vendor.{schema}", file)


def test_public_ci_calls_targets_of_make() -> None:
    workflows = [yaml.safe_load(text_of(file)) for file in sorted(WORKFLOWS.glob("*.yml"))]
    jobs = [job for workflow in workflows for job in workflow["jobs"].values()]
    steps = [step for job in jobs for step in job.get("steps", ())]
    called = [step["run"] for step in steps if "make " in step.get("run", "")]
    for command in called:
        if "apt-get" not in command:
            in_(ROOT, "make", "--dry-run", *shlex.split(command.removeprefix("sudo "))[1:])
    assert {"make lint", "make test", "make docs", "make dist", "make image"} <= set(called)


@pytest.mark.parametrize("file", NGINX_FILES, ids=lambda file: file.stem)
def test_whoever_waits_waits_longer(file: Path) -> None:
    settings = load(None, {"PRERENDER_ORIGIN": "http://origin:3000"})
    grace = int(compose("single")["prerender"]["stop_grace_period"].removesuffix("s"))
    assert grace > settings.server.grace
    (patience,) = re.findall(r"proxy_read_timeout (\d+)s;", file.read_text("utf-8"))
    assert int(patience) > settings.origin.timeout + settings.render.timeout


def test_the_image_is_built_of_files_that_are_sent_to_docker() -> None:
    ignored = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    sent = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    copied = {
        source
        for line in re.findall(r"^COPY (?!--from)(.*)$", dockerfile(), re.MULTILINE)
        for source in line.split()[:-1]
    }
    assert copied == sent
    assert all((ROOT / source).exists() for source in copied)


async def test_the_health_check_of_the_image(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    (found,) = re.findall(r"^HEALTHCHECK .*?CMD (\[.*\])$", dockerfile(), re.MULTILINE)
    command = json.loads(found)
    assert command[0] == "python3"
    assert command[-1].count("8081") == 1
    origin = await pages(start_origin, {})
    proxy = await start_proxy(origin.url)
    for port, status in ((proxy.running.admin_port, 0), (raw.free_port(), 1)):
        checked = command[-1].replace("8081", str(port))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, *command[1:-1], checked), stderr=asyncio.subprocess.DEVNULL
        )
        async with asyncio.timeout(30):
            assert await process.wait() == status


@asynccontextmanager
async def nginx(
    folder: Path, file: Path, port: int, proxy_port: int, site_port: int
) -> AsyncIterator[None]:
    """nginx with a configuration from deploy/ at other addresses, which ``nginx -t`` accepts."""
    site = nginx_server.deployed(file.name, folder, port, [proxy_port], site_port)
    (folder / "site.conf").write_text(site)
    included = nginx_server.configuration(folder, f"  include {folder}/site.conf;")
    (folder / "nginx.conf").write_text(included)
    command = (
        nginx_server.program(),
        "-p",
        str(folder),
        "-e",
        "stderr",
        "-c",
        str(folder / "nginx.conf"),
    )
    in_(folder, *command, "-t")
    async with running(*command), ClientSession() as client:
        await answered(client, f"http://127.0.0.1:{port}/")
        yield


@asynccontextmanager
async def in_front(
    folder: Path, file: Path, proxy: Proxy, site: Site
) -> AsyncIterator[tuple[str, ClientSession]]:
    """The URL of nginx in front of both, and a client."""
    port = raw.free_port()
    site_port = int(site.url.rpartition(":")[2])
    async with nginx(folder, file, port, proxy.running.public_port, site_port):
        yield f"http://127.0.0.1:{port}", proxy.client


async def by_the_proxy(url: str, client: ClientSession, site: Site, user_agent: str) -> bool:
    """Whether a request came through the proxy, by its Via header."""
    async with client.get(url, headers={"User-Agent": user_agent}) as answer:
        assert answer.status == 200
    return "Via" in site.requests[-1].headers


def limited(config: str) -> str:
    """A configuration with the limit of docs/security.md, but of one request a minute."""
    block = re.search(r"```nginx\n(.*?)```", text_of(ROOT / "docs/security.md"), re.DOTALL)
    assert block
    zone, _, of_server = block[1].partition("server {\n")
    slow, count = re.subn(r"rate=\S+;", "rate=1r/m;", zone)
    limit = of_server.removesuffix("}\n").replace(" burst=50", "")
    assert (count, limit != of_server) == (1, True)
    # The last server is that of the site.
    before, _, after = config.rpartition("\nserver {\n")
    return f"{slow}{before}\nserver {{\n{limit}{after}"


@pytest.mark.parametrize("file", PLAIN_FILES, ids=lambda file: file.stem)
async def test_the_documented_limit_counts_ugly_urls(
    start_origin: StartOrigin, tmp_path: Path, file: Path
) -> None:
    origin = await pages(start_origin, {"/": PAGE})
    port, own = raw.free_port(), int(origin.url.rpartition(":")[2])
    config = limited(nginx_server.deployed(file.name, tmp_path, port, [own], own))
    async with nginx_server.running(tmp_path, config, port), ClientSession() as client:
        for path, wanted in (("/?_escaped_fragment_=", [200, 429]), ("/", [200, 200])):
            statuses = []
            for _ in range(2):
                async with client.get(f"http://127.0.0.1:{port}{path}") as answer:
                    statuses.append(answer.status)
            assert statuses == wanted


@pytest.mark.parametrize("file", PLAIN_FILES, ids=lambda file: file.stem)
async def test_nginx_knows_for_whom_it_asks(
    start_origin: StartOrigin, start_proxy: StartProxy, tmp_path: Path, file: Path
) -> None:
    origin = await pages(start_origin, {"/": PAGE})
    proxy = await start_proxy(origin.url, {"site": {"url": "https://www.example.com"}})
    async with in_front(tmp_path, file, proxy, origin) as (url, client):
        spoofed = dict.fromkeys(SAID_BY_PROXIES, "evil") | {"Host": HOST}
        async with client.get(f"{url}/", headers=spoofed) as answer:
            assert "plain" in await answer.text()
        asked = origin.requests[-1].headers
        assert not any("evil" in value for value in asked.values())
        assert asked["X-Real-IP"] == "127.0.0.1"
        assert asked["Host"] == asked["X-Forwarded-Host"] == HOST
        assert asked["X-Forwarded-Proto"] == "http"
        through_both = "127.0.0.1, 127.0.0.1"
        assert asked["X-Forwarded-For"] == (through_both if "Via" in asked else "127.0.0.1")
        for query in ("_escaped_fragment_=", "a=b&_escaped_fragment_=c%26d=%2520"):
            async with client.get(f"{url}/?{query}") as answer:
                assert "plain+" in await answer.text()
                assert "prerender; " in answer.headers["Cache-Status"]


async def test_only_crawlers_and_ugly_urls_go_to_the_proxy(
    start_origin: StartOrigin, start_proxy: StartProxy, tmp_path: Path
) -> None:
    site = await pages(start_origin, {"/": PAGE})
    proxy = await start_proxy(site.url)
    async with in_front(tmp_path, DEPLOY / "nginx/crawlers.conf", proxy, site) as (url, client):
        for person in (BROWSER, "", "Mozilla/5.0 (iPhone) [Pinterest/iOS]", "curl/8.5.0"):
            assert not await by_the_proxy(f"{url}/", client, site, person)
        assert not await by_the_proxy(f"{url}/?not_escaped_fragment_=", client, site, BROWSER)
        for name in (one.name for one in built_in().crawlers):
            crawler = f"{name.removeprefix('^').upper()}2.1"
            if not name.startswith("^"):
                crawler = f"Mozilla/5.0 (compatible; {crawler})"
            assert await by_the_proxy(f"{url}/", client, site, crawler), crawler


async def until_nginx_says(
    word: str, client: ClientSession, url: str, coding: str = "identity"
) -> tuple[bytes, str]:
    """Repeat a request until nginx reports this cache status. Returns the body and the ETag.

    The rest of the TTL, of when nginx stored the response, is never in it.
    """
    async with asyncio.timeout(raw.SECONDS):
        while True:
            async with client.get(url, headers={"Accept-Encoding": coding}) as answer:
                assert answer.headers.getall("Cache-Control") == [NOT_KEPT]
                if answer.headers["X-Cache"] == word:
                    return await answer.read(), answer.headers["ETag"]
            await asyncio.sleep(0.02)


async def test_nginx_keeps_hot_snapshots(
    start_origin: StartOrigin, start_proxy: StartProxy, tmp_path: Path
) -> None:
    page = PAGE + "<p>enough to be compressed</p>" * 100
    content: dict[str, str | web.Response] = {"/": page}
    site = await pages(start_origin, content)
    proxy = await start_proxy(site.url, {"cache": {"rules": [{"path": "/never*", "ttl": "never"}]}})
    caching = DEPLOY / "nginx/caching.conf"
    async with in_front(tmp_path, caching, proxy, site) as (url, client):
        ugly = f"{url}/?_escaped_fragment_="
        first, etag = await until_nginx_says("MISS", client, ugly)
        assert await until_nginx_says("HIT", client, ugly) == (first, etag)
        assert await until_nginx_says("REVALIDATED", client, ugly) == (first, etag)
        # Each content coding is cached separately, and the crawler's own copy is revalidated.
        _, other = await until_nginx_says("HIT", client, ugly, "gzip")
        assert other != etag
        conditional = {"If-None-Match": etag, "Accept-Encoding": "identity"}
        async with client.get(ugly, headers=conditional) as answer:
            assert (answer.status, answer.headers["Cache-Control"]) == (304, NOT_KEPT)
        # A purge is seen soon.
        content["/"] = page.replace("plain", "new")
        async with client.post(f"{proxy.admin_url}/api/v1/purge", json={"all": True}) as answer:
            assert answer.status == 200
        async with asyncio.timeout(raw.SECONDS):
            while b"new+" not in (await until_nginx_says("HIT", client, ugly))[0]:
                await asyncio.sleep(0.02)
        # Nothing else is kept: pages of the site, what must not be, errors.
        async with client.get(f"{url}/") as answer:
            assert "X-Cache" not in answer.headers
        content["/never"] = PAGE
        for target, control in (("/never", ["no-cache"]), ("/missing", [])):
            for _ in range(2):
                async with client.get(f"{url}{target}?_escaped_fragment_=") as answer:
                    assert answer.headers["X-Cache"] == "MISS"
                    assert answer.headers.getall("Cache-Control", []) == control


async def test_targets_of_ugly_urls_pass_as_they_are(tmp_path: Path) -> None:
    target = "/a%2Fb//c;d?x=%7e&y=%C3%A9&_escaped_fragment_=e%26f"
    async with raw.origin(raw.answering(raw.OK)) as behind:
        port = raw.free_port()
        async with nginx(tmp_path, DEPLOY / "nginx/caching.conf", port, behind.port, 9):
            await raw.ask(
                port, f"GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode()
            )
    assert behind.requests[-1].line.decode() == f"GET {target} HTTP/1.1"


def manifests() -> Iterator[dict[str, Any]]:
    for file in MANIFESTS:
        yield from yaml.safe_load_all(file.read_text("utf-8"))


def containers() -> list[dict[str, Any]]:
    return [
        container
        for manifest in manifests()
        if manifest["kind"] == "Deployment"
        for container in manifest["spec"]["template"]["spec"]["containers"]
    ]


def test_kubernetes_would_take_the_manifests() -> None:
    found = list(manifests())
    assert {manifest["kind"] for manifest in found} >= {"Deployment", "Service"}
    for manifest in found:
        kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)


def test_the_sidecar_is_configured_and_probed() -> None:
    proxies = [container for container in containers() if container["name"] == "prerender"]
    assert len(proxies) == len(MANIFESTS)
    for proxy in proxies:
        given = {
            entry["name"]: entry.get("value", "a-token-of-enough-length") for entry in proxy["env"]
        }
        settings = load(None, set_in_the_image() | given)
        ports = {port["name"]: port["containerPort"] for port in proxy["ports"]}
        assert ports == {"http": settings.server.port, "admin": settings.admin.port}
        # Others than the pod itself ask the admin listener, so it has a token.
        assert settings.admin.host == "0.0.0.0"
        assert settings.admin.token
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert proxy[probe]["httpGet"]["port"] == "admin"


async def test_the_probes_of_the_kubelet(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    """They are sent to the pod's address, without the token."""
    origin = await pages(start_origin, {"/": PAGE})
    admin = {"host": "0.0.0.0", "token": "a-token-of-enough-length"}
    proxy = await start_proxy(origin.url, {"admin": admin})
    assert "plain+" in (await proxy.crawl("/")).text
    probes = {
        proxy[probe]["httpGet"]["path"]
        for proxy in containers()
        for probe in ("startupProbe", "livenessProbe", "readinessProbe")
        if "httpGet" in proxy.get(probe, {})
    }
    assert probes == {"/healthz", "/readyz"}
    for path in (*probes, "/readyz/queue"):
        headers = {"Host": f"10.1.2.3:{proxy.running.admin_port}"}
        async with proxy.client.get(f"{proxy.admin_url}{path}", headers=headers) as answer:
            assert answer.status == 200


@pytest.mark.parametrize("container", containers(), ids=lambda container: container["name"])
def test_containers_have_limits_and_no_privileges(container: dict[str, Any]) -> None:
    if container["name"] == "site":
        return  # a placeholder for the reader's own file
    assert set(container["resources"]) == {"requests", "limits"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def size_of(text: str) -> int:
    """Bytes as in systemd, Docker Compose and Kubernetes."""
    number, unit = re.fullmatch(r"(\d+)([A-Za-z]+)", text).groups()  # type: ignore[union-attr]
    return int(number) * {"m": 1024**2, "g": 1024**3}[unit[0].lower()]


# Measured with eight pages, each with sixteen workers, while a browser is replaced.
MOST_TASKS = 401


def test_limits_of_the_unit_compose_and_the_chart_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    unit = dict(re.findall(r"^(\w+)=(.*)$", text_of(UNIT), re.MULTILINE))
    proxy = compose("single")["prerender"]
    values = yaml.safe_load(text_of(DEPLOY / "helm/prerender-proxy/values.yaml"))
    of_chart = values["resources"]["limits"]["memory"]
    pods = [one for one in containers() if one["name"] == "prerender"]
    assert int(unit["TasksMax"]) == proxy["pids_limit"] > 2 * MOST_TASKS
    assert size_of(proxy["mem_limit"]) == size_of(of_chart)
    of_pods = {size_of(one["resources"]["limits"]["memory"]) for one in pods}
    assert of_pods == {size_of(of_chart), size_of(unit["MemoryMax"])}
    settings = load(None, {"PRERENDER_ORIGIN": "http://site"})
    monkeypatch.setattr(defaults, "_cpus", lambda: 4.0)
    for limit, page_count in ((of_chart, 8), (unit["MemoryMax"], 4)):
        monkeypatch.setattr(container, "memory_limit", lambda limit=limit: size_of(limit))
        assert defaults.page_count(settings) >= page_count


def test_pods_end_later_than_the_proxy() -> None:
    grace = load(None, {"PRERENDER_ORIGIN": "http://site"}).server.grace
    for manifest in manifests():
        if manifest["kind"] == "Deployment" and "store" not in manifest["metadata"]["name"]:
            pod = manifest["spec"]["template"]["spec"]
            (proxy,) = (one for one in pod["containers"] if one["name"] == "prerender")
            (_, pause) = proxy["lifecycle"]["preStop"]["exec"]["command"]
            assert pod["terminationGracePeriodSeconds"] > grace + int(pause)


CHART = DEPLOY / "helm/prerender-proxy"
IMAGE = "REPLACE_WITH_YOUR_REGISTRY/prerender-proxy"
NEEDED = {
    "origin": "http://site.example.svc:3000",
    "site": "https://www.example.com",
    "image": {"repository": IMAGE},
}


# In its own process: Helm includes the Go runtime, with its threads and signal handlers.
HELM = """
import json, sys
from helm_python import Chart, HelmError
try:
    chart = Chart.load(sys.argv[1])
    print(json.dumps(chart.render(json.loads(sys.argv[2]), name="prerender", namespace="web")))
except HelmError as error:
    sys.exit(str(error))
"""


def helm(values: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", HELM, str(CHART), json.dumps(NEEDED | values)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def charted(values: dict[str, Any]) -> list[dict[str, Any]]:
    """The manifests of the chart."""
    rendered = helm(values)
    assert rendered.returncode == 0, rendered.stderr
    files = json.loads(rendered.stdout).items()
    texts = [text for name, text in files if name.endswith(".yaml")]
    return [manifest for text in texts for manifest in yaml.safe_load_all(text) if manifest]


def named(found: list[dict[str, Any]], kind: str, name: str = "prerender") -> dict[str, Any]:
    (one,) = (one for one in found if (one["kind"], one["metadata"]["name"]) == (kind, name))
    spec: dict[str, Any] = one["spec"]
    return spec


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"store": {"enabled": False}, "networkPolicy": {"enabled": False}},
        {"networkPolicy": {"thirdParties": False, "adminFrom": [{"namespaceSelector": {}}]}},
    ],
)
def test_kubernetes_would_take_the_chart(values: dict[str, Any]) -> None:
    found = charted(values)
    for manifest in found:
        kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)
    kinds = [manifest["kind"] for manifest in found]
    stored = values.get("store", {}).get("enabled", True)
    assert kinds.count("Deployment") == kinds.count("Service") == 1 + stored
    assert kinds.count("NetworkPolicy") == (
        2 if values.get("networkPolicy", {}).get("enabled", True) else 0
    )


def test_the_chart_starts_what_the_plain_manifests_start() -> None:
    """The container and the pod's options are those of replicas.yaml."""
    (plain,) = yaml.safe_load_all(text_of(DEPLOY / "kubernetes/replicas.yaml").partition("---")[0])
    pod = plain["spec"]["template"]["spec"]
    made = named(charted({}), "Deployment")["template"]["spec"]
    (container,), (wanted,) = made.pop("containers"), pod.pop("containers")
    environment = {entry["name"]: entry for entry in container.pop("env")}
    assert environment == {entry["name"]: entry for entry in wanted.pop("env")}
    assert (container, made) == (wanted, pod)


def test_settings_of_the_chart() -> None:
    settings = {
        "cache": {"ttl": 1_000_000, "page_ttl": True, "refresh": 0.25},
        "network": {"allow": "a.example,b.example"},
    }
    found = charted({"settings": settings, "store": {"enabled": False}})
    (container,) = named(found, "Deployment")["template"]["spec"]["containers"]
    given = {one["name"]: one.get("value", "a-token-of-enough-length") for one in container["env"]}
    loaded = load(None, set_in_the_image() | given)
    cache = loaded.cache
    assert (cache.ttl, cache.page_ttl, cache.refresh) == (1_000_000, True, 0.25)
    assert loaded.network.allow == ("a.example", "b.example")


@pytest.mark.parametrize(
    "values",
    [
        {"origin": ""},
        {"site": "www.example.com"},
        {"settings": {"cache": {"ttl": [1]}}},
        {"image": {}},
    ],
)
def test_wrong_values_of_the_chart(values: dict[str, Any]) -> None:
    refused = helm(values)
    assert refused.returncode == 1
    assert next(iter(values)) in refused.stderr


def test_an_image_without_a_registry_is_refused_at_once() -> None:
    """Its name is no image reference (grammar of github.com/distribution/reference)."""
    part = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
    path = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
    image = rf"(?:{part}(?:\.{part})*(?::[0-9]+)?/)?{path}(?:/{path})*:[\w][\w.-]*"
    named = {container["image"] for container in containers()}
    refused = {name for name in named if not re.fullmatch(image, name)}
    assert refused == {f"{IMAGE}:{__version__}", IMAGE.replace("prerender-proxy", "site:1")}
    for name in named:
        assert re.fullmatch(image, name.replace("REPLACE_WITH_YOUR_REGISTRY", "a.example:5000"))


def test_pods_reach_the_origin_the_store_and_the_internet_only() -> None:
    rules = named(charted({}), "NetworkPolicy")["egress"]
    ports = [tuple(port["port"] for port in rule["ports"]) for rule in rules]
    assert ports == [(53, 53), (3000,), ("redis",), (80, 443)]
    refused = {
        ip_network(network) for peer in rules[-1]["to"] for network in peer["ipBlock"]["except"]
    }
    private = ("10.1.2.3", "192.168.1.1", "172.20.0.1", "fd00::1", "::1")
    for address in (*private, "169.254.169.254", "168.63.129.16"):
        assert any(ip_address(address) in network for network in refused), address
    https = charted({"origin": "https://site.example"})
    assert named(https, "NetworkPolicy")["egress"][1]["ports"] == [{"port": 443}]


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The systemd unit, with the path of an existing program."""
    text = UNIT.read_text("utf-8")
    assert text.count("ExecStart=/opt/prerender/bin/prerender ") == 1
    program = shutil.which("true")
    copy = tmp_path / UNIT.name
    copy.write_text(
        text.replace("ExecStart=/opt/prerender/bin/prerender ", f"ExecStart={program} ")
    )
    return copy


def test_systemd_understands_the_unit(unit: Path) -> None:
    done = subprocess.run(
        ["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_systemd_finds_little_that_the_service_could_do(unit: Path) -> None:
    """In tenths of systemd's scale, on which 100 is a service without protection."""
    in_(unit.parent, "systemd-analyze", "security", "--offline=yes", "--threshold=25", unit)


def _allowed(filters: str) -> set[str]:
    """The system calls of a SystemCallFilter=, with groups resolved."""
    names = set()
    for name in filters.split():
        if name.startswith("@"):
            listed = in_(ROOT, "systemd-analyze", "syscall-filter", name).splitlines()[1:]
            lines = [line.strip() for line in listed]
            names |= _allowed(" ".join(line for line in lines if line and line[0] != "#"))
        else:
            names.add(name)
    return names


SCMP_ACT_ALLOW = 0x7FFF0000
SCMP_ACT_ERRNO = 0x00050000
EPERM = 1
CAGE = f"""
import ctypes, os, sys
seccomp = ctypes.CDLL("libseccomp.so.2")
seccomp.seccomp_init.restype = ctypes.c_void_p
rules = ctypes.c_void_p(seccomp.seccomp_init(ctypes.c_uint32({SCMP_ACT_ERRNO | EPERM})))
for name in sys.argv[1].split():
    number = seccomp.seccomp_syscall_resolve_name(name.encode())
    if number >= 0:
        assert seccomp.seccomp_rule_add(rules, ctypes.c_uint32({SCMP_ACT_ALLOW}), number, 0) == 0
assert seccomp.seccomp_load(rules) == 0
os.execv(sys.argv[2], sys.argv[2:])
"""


@pytest.mark.ci_only
async def test_the_service_needs_no_other_system_calls(
    start_origin: StartOrigin, tmp_path: Path, client: ClientSession
) -> None:
    """A page is rendered under the unit's filter."""
    (filters,) = re.findall(r"^SystemCallFilter=(.*)$", text_of(UNIT), re.MULTILINE)
    site = await pages(start_origin, {"/": PAGE})
    public, admin = raw.free_ports(2)
    settings = {
        "PATH": SEARCHED,
        "PRERENDER_ORIGIN_URL": site.url,
        "PRERENDER_SERVER_PORT": str(public),
        "PRERENDER_ADMIN_PORT": str(admin),
        "PRERENDER_BROWSER_PAGES": "1",
        "PRERENDER_CACHE_URL": f"file://{tmp_path}/snapshots",
    }
    caged = (sys.executable, "-c", CAGE, " ".join(_allowed(filters)))
    command = (sys.executable, "-m", "prerender", "serve")
    url = f"http://127.0.0.1:{public}/?_escaped_fragment_="
    async with running(*caged, *command, cwd=ROOT, env=settings) as process:
        await answered(client, url)
        async with client.get(url) as answer:
            assert "plain+" in await answer.text()
    assert process.returncode == 0
