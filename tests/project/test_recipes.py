"""The recipes in docs/recipes.md, as far as their programs are installed."""

import asyncio
import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from aiohttp import ClientSession, web

from tests.conftest import StartOrigin, StartProxy, pages
from tests.support import raw
from tests.support.commands import ROOT, answered, running

PLUGIN = ROOT / "examples/wordpress/prerender-purge.php"
ALERTMANAGER = ROOT / "deploy/prometheus/alertmanager.yml"
TOKEN = "a-token-of-enough-length"
# As much of WordPress as the plugin calls; a post changes its status.
WORDPRESS = """<?php
class WP_Post { public $post_type = 'post'; }
$actions = [];
function add_action($name, $call, $priority, $count) { global $actions; $actions[$name] = $call; }
function get_permalink($post) { global $argv; return "$argv[3]/news/42"; }
function home_url($path) { global $argv; return $argv[3] . $path; }
function get_post_type_archive_link($type) { return false; }
function get_object_taxonomies($post) { return ['category']; }
function get_the_terms($post, $taxonomy) { return ['lamps']; }
function get_term_link($term) { global $argv; return "$argv[3]/category/$term"; }
function wp_is_post_revision($post) { return false; }
function is_post_type_viewable($type) { return true; }
function wp_json_encode($value) { return json_encode($value); }
function is_wp_error($response) { return false; }
function wp_remote_retrieve_response_code($response) { return $response[0]; }
function wp_remote_retrieve_body($response) { return $response[1]; }
function wp_remote_post($url, $options) {
    $lines = [];
    foreach ($options['headers'] as $name => $value) { $lines[] = "$name: $value"; }
    $body = file_get_contents($url, false, stream_context_create(['http' => [
        'method' => 'POST', 'header' => $lines, 'content' => $options['body'], 'ignore_errors' => true,
    ]]));
    return [(int) explode(' ', $http_response_header[0])[1], $body];
}
define('PRERENDER_PURGE_URL', $argv[2]);
define('PRERENDER_TOKEN', $argv[4]);
require $argv[1];
$actions['transition_post_status']($argv[5], $argv[6], new WP_Post());
"""


@pytest.mark.skipif(shutil.which("php") is None, reason="php is not installed (Debian: php-cli)")
async def test_wordpress_purges_what_it_publishes(
    start_origin: StartOrigin, start_proxy: StartProxy, tmp_path: Path
) -> None:
    shown = ("/news/42", "/", "/category/lamps")
    origin = await pages(start_origin, dict.fromkeys((*shown, "/other"), "<p>page"))
    proxy = await start_proxy(origin.url, {"admin": {"token": TOKEN}})
    stub = tmp_path / "wordpress.php"
    stub.write_text(WORDPRESS)

    async def change(new: str, old: str, token: str = TOKEN) -> str:
        given = (f"{proxy.admin_url}/api/v1/purge", origin.url, token, new, old)
        process = await asyncio.create_subprocess_exec(
            *("php", "-d", "error_log=", str(stub), str(PLUGIN), *given),
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(60):
            _, told = await process.communicate()
        return told.decode()

    async def hits() -> list[bool]:
        return [
            "hit" in (await proxy.crawl(path)).headers["Cache-Status"]
            for path in (*shown, "/other")
        ]

    await hits()
    assert await hits() == [True] * 4
    assert await change("draft", "draft") == ""
    assert await hits() == [True] * 4
    assert await change("draft", "publish") == ""
    assert await hits() == [False, False, False, True]
    assert "not purged" in await change("publish", "draft", "another-token-of-length")


def test_alertmanager_takes_its_configuration() -> None:
    rules = yaml.safe_load((ALERTMANAGER.parent / "alerts.yml").read_text("utf-8"))
    names = {rule["alert"] for group in rules["groups"] for rule in group["rules"]}
    (rule,) = yaml.safe_load(ALERTMANAGER.read_text("utf-8"))["inhibit_rules"]
    assert rule["source_matchers"] == ['alertname="PrerenderDown"']
    assert "PrerenderDown" in names
    if (amtool := shutil.which("amtool")) is None:
        pytest.skip("amtool is not installed (Debian: prometheus-alertmanager)")
    subprocess.run([amtool, "check-config", ALERTMANAGER], check=True, timeout=60)


@pytest.mark.skipif(
    shutil.which("prometheus-alertmanager") is None,
    reason="it is not installed (Debian: prometheus-alertmanager)",
)
async def test_alerts_reach_a_chat(
    start_origin: StartOrigin, tmp_path: Path, client: ClientSession
) -> None:
    """One message: PrerenderDown suppresses the other alerts."""
    messages: asyncio.Queue[dict[str, list[dict[str, str]]]] = asyncio.Queue()

    async def hook(request: web.Request) -> web.Response:
        await messages.put(await request.json())
        return web.Response(text="ok")

    application = web.Application()
    application.router.add_post("/hook", hook)
    chat = await start_origin(application)
    (tmp_path / "chat-url").write_text(f"{chat.url}/hook")
    config = tmp_path / "alertmanager.yml"
    text = ALERTMANAGER.read_text("utf-8")
    config.write_text(text.replace("/etc/alertmanager/chat-url", str(tmp_path / "chat-url")))
    url = f"http://127.0.0.1:{raw.free_port()}"
    command = (
        "prometheus-alertmanager",
        f"--config.file={config}",
        f"--storage.path={tmp_path}/data",
        f"--web.listen-address={url.removeprefix('http://')}",
        "--cluster.listen-address=",
    )

    def alert(name: str) -> dict[str, dict[str, str]]:
        labels = {"alertname": name, "instance": "a:8081", "severity": "critical"}
        return {"labels": labels, "annotations": {"summary": f"{name}!", "description": "why"}}

    async with running(*command, stderr=asyncio.subprocess.DEVNULL), asyncio.timeout(60):
        await answered(client, f"{url}/-/ready")
        alerts = json.dumps([alert("PrerenderDown"), alert("PrerenderRendersFail")])
        headers = {"Content-Type": "application/json"}
        async with client.post(f"{url}/api/v2/alerts", data=alerts, headers=headers) as answer:
            assert answer.status == 200
        (message,) = (await messages.get())["attachments"]
    assert message["title"] == "FIRING: PrerenderDown"
    assert "PrerenderDown!\nwhy" in message["text"]
    assert messages.empty()
