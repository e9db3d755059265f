"""Audit a site as a crawler, and compare it with what visitors see.

Examples:
  prerender check https://www.example.com/
  prerender check https://www.example.com/sitemap.xml --via http://127.0.0.1:8080
"""

import argparse
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path

from yarl import URL

from prerender.cli import common, terminal
from prerender.cli.terminal import FAILED, Progress
from prerender.config import Settings
from prerender.errors import SitemapError
from prerender.gateway.blocklist import Blocklist
from prerender.rendering import from_settings
from prerender.tools.check.findings import Finding, Report
from prerender.tools.check.junit import junit
from prerender.tools.check.readiness import Readiness
from prerender.tools.check.site import Result, SiteCheck
from prerender.tools.check.visitor_view import VisitorBrowser
from prerender.tools.crawler import USER_AGENT, CrawlerClient
from prerender.tools.url_sources import Sources


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "url", metavar="URL|SITEMAP", help="a page, whose links are followed, or a sitemap"
    )
    parser.add_argument(
        "--max-pages", type=common.whole(1), default=100, metavar="N", help="default: 100"
    )
    common.add_concurrency(parser, default=4)
    common.add_via(parser)
    parser.add_argument(
        "--user-agent", default=USER_AGENT, help="User-Agent to send, for sites that depend on it"
    )
    parser.add_argument(
        "--no-browser", action="store_true", help="do not compare with what visitors see"
    )
    parser.add_argument(
        "--readiness",
        action="store_true",
        help="also check what AI agents need, and give a score from 0 to 100",
    )
    parser.add_argument(
        "--fail-under",
        type=common.whole(1, 100),
        metavar="SCORE",
        help="exit status 1 if the score is lower; implies --readiness",
    )
    parser.add_argument("--junit", type=Path, metavar="FILE", help="also write JUnit XML, for CI")
    common.add_json(parser)
    common.add_config(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Check the site and print a report. Returns 1 if there are errors, or if the score is too low."""
    options.url = common.with_scheme(options.url)
    site = common.site_of(options.url)
    overrides: dict[str, dict[str, object]] = {
        "origin": {"url": options.via or site},
        "browser": {"pages": options.concurrency},
    }
    settings = common.settings_for_site(site, options.config, overrides)
    common.quiet_logs(settings.log.model_copy(update={"level": "error"}))
    if options.junit is not None:
        common.try_to_write(options.junit)  # now, not after the check
    result, readiness = common.run(_check(options, site, settings))
    counts = _counts(result)
    failure = ""
    if readiness is not None and options.fail_under and readiness.score() < options.fail_under:
        failure = f"the score is {readiness.score()}, less than {options.fail_under}"
    if options.json:
        facts = {
            "site": site,
            "pages": [_of_report(report) for report in result.pages],
            "findings": [_of_finding(finding) for finding in result.site],
            "left_out": result.left_out,
            **counts,
        }
        if readiness is not None:
            facts["readiness"] = readiness.facts()
        written = terminal.write_json(facts)
    else:
        score = "" if readiness is None else _score(readiness)
        written = terminal.write(score + _summary(result, counts))
    if failure:
        terminal.say(f"prerender: {failure}")
    if options.junit is not None:
        common.write_file(options.junit, junit(site, result, failure))
    return FAILED if counts["errors"] or failure or not written else 0


async def _check(
    options: argparse.Namespace, site: str, settings: Settings
) -> tuple[Result, Readiness | None]:
    via = URL(options.via) if options.via else None
    async with AsyncExitStack() as stack:
        progress = stack.enter_context(terminal.progress("page"))
        own = common.site_headers(options.config)
        crawler = await stack.enter_async_context(
            CrawlerClient.open(via, options.user_agent, site_headers=own)
        )
        sources = Sources(crawler.stream, progress)
        urls = [options.url]
        unread: list[SitemapError] = []
        if listed := not await sources.is_page(options.url):
            urls = await sources.listed(urls, unread.append)
            if unread and not urls:
                raise SitemapError(str(unread[0]))
        visitor = None
        if not options.no_browser:
            pool, addresses = await stack.enter_async_context(from_settings.visiting(settings))
            blocklist = Blocklist(settings.network)
            visitor = VisitorBrowser(pool, settings.render, addresses, blocklist)

        def on_report(report: Report) -> None:
            progress.done()
            if not options.json:
                _print(report, progress)

        readiness = None
        if options.readiness or options.fail_under:
            readiness = Readiness(site, crawler)
        check = SiteCheck(
            site,
            crawler,
            visitor,
            follow=not listed,
            most=options.max_pages,
            concurrency=options.concurrency,
            user_agent=options.user_agent,
            readiness=readiness,
            on_report=on_report,
            on_new_pages=progress.add_to_total,
        )
        check.result.site += [Finding("sitemap-unreadable", str(error)) for error in unread]
        return await check.run(urls), readiness


def _score(readiness: Readiness) -> str:
    parts = ", ".join(
        f"{part.name} {part.weight * part.share:.3g}/{part.weight}" for part in readiness.parts()
    )
    return f"readiness {readiness.score()} of 100: {parts}\n"


def _print(report: Report, progress: Progress) -> None:
    likeness = "" if report.similarity is None else f"{report.similarity:.0%}"
    status = report.status or "-"
    line = f"{report.worst:<8}{status:>4}  {report.kind:<9}{report.seconds:6.2f} s {likeness:>5}"
    lines = [f"{line}  {report.url}", *map(_line, report.findings)]
    progress.result("\n".join(lines))


def _line(finding: Finding) -> str:
    return f"    {finding.level}: {finding.code}: {' '.join(finding.text.split())}"


def _counts(result: Result) -> dict[str, int]:
    levels = Counter(
        finding.level
        for findings in (result.site, *(report.findings for report in result.pages))
        for finding in findings
    )
    return {"errors": levels["error"], "warnings": levels["warning"], "notes": levels["note"]}


def _summary(result: Result, counts: dict[str, int]) -> str:
    lines = [_line(finding).strip() for finding in result.site]
    compared = [report.similarity for report in result.pages if report.similarity is not None]
    facts = [terminal.counted(number, name[:-1]) for name, number in counts.items()]
    pages = terminal.counted(len(result.pages), "page")
    if result.left_out:
        pages += f" ({result.left_out} more not checked: --max-pages)"
    if compared:
        pages += f", lowest similarity {min(compared):.0%}"
    if result.pages:
        pages += f", slowest {max(report.seconds for report in result.pages):.2f} s"
    return "\n".join([*lines, f"{pages}: {', '.join(facts)}", ""])


def _of_report(report: Report) -> dict[str, object]:
    facts = asdict(report)
    facts["level"] = report.worst
    facts["findings"] = [_of_finding(finding) for finding in report.findings]
    return facts


def _of_finding(finding: Finding) -> dict[str, str]:
    return {"level": finding.level, "code": finding.code, "text": finding.text}
