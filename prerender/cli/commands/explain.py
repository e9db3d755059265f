"""Say how a running proxy would respond to a request, and why.

Examples:
  prerender explain 'https://www.example.com/#!/items/3'
  prerender explain /about --user-agent Googlebot --admin http://127.0.0.1:8081
"""

import argparse
from typing import Any

from prerender.cli import common, terminal
from prerender.cli.terminal import FAILED

_WIDTH = 14
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "url", metavar="URL", help="a pretty, ugly or ordinary URL of the site, or a path"
    )
    parser.add_argument("--user-agent", default="", help="User-Agent of the client")
    parser.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="'NAME: VALUE'",
        help="another header of the request; can be repeated",
    )
    common.add_json(parser)
    common.add_admin(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the explanation. Raises AdminError."""
    query = {"url": options.url, "user_agent": options.user_agent, "header": options.header}
    explanation = common.admin_of(options).explain(query)
    written = (
        terminal.write_json(explanation) if options.json else terminal.write(_text(explanation))
    )
    return 0 if written else FAILED


def _text(explanation: dict[str, Any]) -> str:
    request = explanation["request"]
    rows: list[tuple[str, str]] = [
        ("request", f"{request['method']} {request['target']}"),
        ("client", _client(explanation)),
        ("decision", f"{explanation['decision']}: {explanation['reason_text']}"),
        ("response", explanation["answered_by"]),
    ]
    if signature := explanation.get("signature"):
        rows.append(("signature", _signature(signature)))
    if page := explanation.get("page"):
        rows.append(("page", f"{page['url']} ({page['variant']})"))
        rows += _snapshot(explanation.get("snapshot"), explanation["freshness"])
    if last := explanation.get("last_render"):
        reason = f": {last['reason']}" if last["reason"] else ""
        rows.append(("last render", f"{last['ended']}, {last['verdict']}{reason}"))
        rows += [("", line) for line in (*last["requests"], *last["errors"])]
    if rendering := explanation.get("rendering"):
        rows.append(("browser", _browser(rendering)))
    return "".join(f"{name:<{_WIDTH}}{_line(text)}\n" for name, text in rows)


def _client(explanation: dict[str, Any]) -> str:
    crawler = explanation["crawler"]
    kind = f'a crawler of the class "{crawler}"' if crawler else "not a known crawler"
    return f"{kind} ({explanation['request']['user_agent'] or 'no User-Agent'})"


def _signature(signature: dict[str, Any]) -> str:
    if signature["verified"]:
        return f"verified, of {signature['agent']}"
    return f"not verified: {signature['reason']}"


def _snapshot(snapshot: dict[str, Any] | None, freshness: dict[str, Any]) -> list[tuple[str, str]]:
    if not freshness["ttl_seconds"]:
        return [("snapshot", "never stored: its TTL is 0")]
    if snapshot is None:
        return [("snapshot", "none is stored")]
    left = snapshot["fresh_for_seconds"]
    renewals = snapshot["renewed_without_rendering"]
    age = f"{'renewed' if renewals else 'rendered'} {_span(snapshot['age_seconds'])} ago"
    fresh = f"fresh for {_span(left)}" if left > 0 else f"expired {_span(-left)} ago"
    rows = [("snapshot", f"status {snapshot['status']}, {snapshot['bytes']} bytes, {age}, {fresh}")]
    if renewals:
        times = terminal.counted(renewals, "time")
        rows.append(("", f"renewed {times} without rendering since {snapshot['rendered']}"))
    if why := snapshot["always_rendered_because"]:
        rows.append(("", f"not renewed without rendering: {why}"))
    if freshness["renewed"]:
        rows.append(("", "a new one would be rendered in the background"))
    if snapshot["refused_replacements"]:
        times = terminal.counted(snapshot["refused_replacements"], "time")
        rows.append(("", f"a worse one was refused {times}"))
    if wait := snapshot["not_tried_again_for_seconds"]:
        rows.append(("", f"not rendered again for {_span(wait)}, as the last render failed"))
    if snapshot["tags"]:
        rows.append(("", f"cache tags: {', '.join(snapshot['tags'])}"))
    return rows


def _browser(rendering: dict[str, Any]) -> str:
    if not rendering["ready"]:
        return "not available"
    waiting = terminal.counted(rendering["queue"], "render")
    now = ", this page is being rendered" if rendering["this_page_now"] else ""
    return f"available, {waiting} waiting{now}"


def _span(seconds: float) -> str:
    """A duration in its largest unit and the next one: "2 h 5 min"."""
    parts: list[str] = []
    left = round(seconds)
    for size, unit in _UNITS:
        if (count := left // size) or (parts and len(parts) < 2):
            parts.append(f"{count} {unit}")
        left %= size
    return " ".join(parts[:2]) or "0 s"


def _line(text: str) -> str:
    return " ".join(text.split())
