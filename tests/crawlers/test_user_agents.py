"""Crawlers and their classes, by User-Agent headers seen in practice."""

import json
import re
import runpy
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prerender.config import load
from prerender.config.crawler_classes import CLASSES, NAMED_CLASSES
from prerender.crawlers.from_settings import triggers_of
from prerender.crawlers.known import Crawler, built_in, parse
from prerender.crawlers.triggers import may_be_page
from prerender.crawlers.user_agents import UserAgents
from prerender.errors import ConfigError
from tests.support.commands import ROOT

KNOWN = UserAgents(built_in().crawlers)
MACINTOSH = "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/537.36 (KHTML, like Gecko)"
WINDOWS = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko)"
ANDROID = "Mozilla/5.0 (Linux; Android 15; Pixel 9) AppleWebKit/537.36 (KHTML, like Gecko)"
IPHONE = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15"

CRAWLERS = {
    "search": [
        "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
        f"{ANDROID} Chrome/137.0.0.0 Mobile Safari/537.36 (compatible; Googlebot/2.1; "
        "+http://www.google.com/bot.html)",
        "Googlebot/2.1 (+http://www.google.com/bot.html)",
        "Mozilla/5.0 (compatible; Google-InspectionTool/1.0;)",
        "Mozilla/5.0 (compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm)",
        "Mozilla/5.0 (compatible; YandexBot/3.0; +http://yandex.com/bots)",
        "Mozilla/5.0 (compatible; Baiduspider/2.0; +http://www.baidu.com/search/spider.html)",
        "Mozilla/5.0 (compatible; Baiduspider-render/2.0; +http://www.baidu.com/search/spider.html)",
        "DuckDuckBot/1.1; (+http://duckduckgo.com/duckduckbot.html)",
        "Mozilla/5.0 (compatible; Yahoo! Slurp; http://help.yahoo.com/help/us/ysearch/slurp)",
        "Mozilla/5.0 (compatible; Yeti/1.1; +https://naver.me/spd)",
        "Sogou web spider/4.0(+http://www.sogou.com/docs/help/webmasters.htm#07)",
        "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_5) AppleWebKit/605.1.15 (KHTML, like Gecko) "
        "Version/13.1.1 Safari/605.1.15 (Applebot/0.1; +http://www.apple.com/go/applebot)",
    ],
    "ai_search": [
        "Mozilla/5.0 (compatible; Amzn-SearchBot/0.1)",
        "meta-webindexer/1.1",
        "Mozilla/5.0 (compatible; ExaBot/1.0)",
        "Mozilla/5.0 (compatible; TavilyBot; +https://tavily.com/)",
        "LinkupBot/1.0 (LinkupBot for web indexing; https://linkup.so/bot; bot@linkup.so)",
        "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko); compatible; AzureAI-SearchBot/1.0;",
        "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; MistralAI-Index/1.0; "
        "+https://docs.mistral.ai/robots)",
        "Mozilla/5.0 (compatible; YandexAdditionalBot/3.0; +http://yandex.com/bots)",
        "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko); compatible; OAI-SearchBot/1.3; "
        "+https://openai.com/searchbot",
        "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; PerplexityBot/1.0; "
        "+https://perplexity.ai/perplexitybot)",
        "Mozilla/5.0 (compatible; Claude-SearchBot/1.0; +searchbot@anthropic.com)",
        "DuckAssistBot/1.2; (+http://duckduckgo.com/duckassistbot.html)",
    ],
    "ai_training": [
        "Mozilla/5.0 (compatible; DeepSeekBot/1.0)",
        "Mozilla/5.0 (compatible; TikTokSpider)",
        "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko); compatible; GPTBot/1.3; "
        "+https://openai.com/gptbot",
        "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; ClaudeBot/1.0; "
        "+claudebot@anthropic.com)",
        "CCBot/2.0 (https://commoncrawl.org/faq/)",
        "meta-externalagent/1.1 (+https://developers.facebook.com/docs/sharing/webmasters/crawler)",
        f"{ANDROID} Chrome/119.0.0.0 Mobile Safari/537.36 (compatible; Bytespider; "
        "spider-feedback@bytedance.com)",
    ],
    "ai_user": [
        f"{ANDROID} Chrome/137.0.0.0 Mobile Safari/537.36 (compatible; Google-Agent)",
        "Mozilla/5.0 (compatible; Amzn-User/0.1)",
        "Mozilla/5.0 (compatible; Google-NotebookLM)",
        f"{MACINTOSH} Chrome/132.0.0.0 Safari/537.36; Manus-User/1.0",
        "Mozilla/5.0 (compatible; GoogleAgent-URLContext)",
        "kagi-fetcher/1.0",
        "Kimi-User/1.0",
        "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko); compatible; ChatGPT-User/1.0; "
        "+https://openai.com/bot",
        "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; Claude-User/1.0; "
        "+Claude-User@anthropic.com)",
        "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; Perplexity-User/1.0; "
        "+https://perplexity.ai/perplexity-user)",
    ],
    "social": [
        "Lemmy/0.19.3; +https://lemmy.example",
        "Viber",
        # Signal, too.
        "WhatsApp/2",
        "Synapse (bot; +https://github.com/matrix-org/synapse)",
        "facebookexternalhit/1.1 (+http://www.facebook.com/externalhit_uatext.php)",
        "facebookexternalhit/1.1;line-poker/1.0",
        "Twitterbot/1.0",
        "TelegramBot (like TwitterBot)",
        "Slackbot-LinkExpanding 1.0 (+https://api.slack.com/robots)",
        "Mozilla/5.0 (compatible; Discordbot/2.0; +https://discordapp.com)",
        "WhatsApp/2.23.20.0 A",
        "LinkedInBot/1.0 (compatible; Mozilla/5.0; Apache-HttpClient +http://www.linkedin.com)",
        "Pinterest/0.2 (+https://www.pinterest.com/bot.html)",
        "Mozilla/5.0 (compatible; Pinterestbot/1.0; +https://www.pinterest.com/bot.html)",
        "http.rb/5.1.1 (Mastodon/4.2.1; +https://mastodon.social/)",
        "Mozilla/5.0 (compatible; Bluesky Cardyb/1.1; +mailto:support@bsky.app)",
        # iMessage.
        "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_11_1) AppleWebKit/601.2.4 (KHTML, like Gecko) "
        "Version/9.0.1 Safari/601.2.4 facebookexternalhit/1.1 Facebot Twitterbot/1.0",
    ],
    "seo_tool": [
        "Mozilla/5.0 (compatible; AhrefsBot/7.0; +http://ahrefs.com/robot/)",
        "Mozilla/5.0 (compatible; SemrushBot/7~bl; +http://www.semrush.com/bot.html)",
        "Mozilla/5.0 (compatible; SemrushBot-SA/0.97; +http://www.semrush.com/bot.html)",
        "Screaming Frog SEO Spider/22.0",
        f"{ANDROID} Chrome/137.0.0.0 Mobile Safari/537.36 Chrome-Lighthouse",
        "Mozilla/5.0 (compatible; MJ12bot/v1.4.8; http://mj12bot.com/)",
    ],
    "archive": [
        "Mozilla/5.0 (compatible; archive.org_bot +http://archive.org/details/archive.org_bot)",
        "Mozilla/5.0 (compatible; bnf.fr_bot; +http://bibnum.bnf.fr/robot/bnf.html)",
    ],
    "feed": [
        "Feedly/1.0 (+http://www.feedly.com/fetcher.html; like FeedFetcher-Google)",
        "FreshRSS/1.26.0 (Linux; https://freshrss.org) like Googlebot",
        "FeedFetcher-Google; (+http://www.google.com/feedfetcher.html)",
    ],
    "monitoring": [
        "Mozilla/5.0+(compatible; UptimeRobot/2.0; http://www.uptimerobot.com/)",
        "Pingdom.com_bot_version_1.4_(http://www.pingdom.com/)",
        f"{WINDOWS} Chrome/138.0.7204.168 Safari/537.36 DatadogSynthetics",
    ],
}
PEOPLE = [
    "",
    "Mozilla/5.0 Lemmy/0.19.3",
    # Applications of companies that have crawlers, too.
    f"{WINDOWS} Viber/25.2.0.1 Chrome/122.0.0.0 Safari/537.36",
    f"{ANDROID} Version/4.0 Chrome/137.0.0.0 Mobile Safari/537.36 Viber/25.2.0",
    f"{WINDOWS} Signal/7.60.0 Chrome/138.0.0.0 Electron/37.2.3 Safari/537.36",
    f"{MACINTOSH} Manus/1.4.0 Chrome/138.0.0.0 Electron/37.2.3 Safari/537.36",
    f"{MACINTOSH} Notion/4.16.1 Chrome/138.0.0.0 Electron/37.2.3 Safari/537.36",
    f"{MACINTOSH} Slack/4.45.64 Chrome/138.0.0.0 Electron/37.2.3 Safari/537.36",
    f"{WINDOWS} Mattermost/5.12.1 Chrome/134.0.0.0 Electron/35.1.5 Safari/537.36",
    f"{WINDOWS} discord/1.0.9200 Chrome/134.0.0.0 Electron/35.3.0 Safari/537.36",
    f"{WINDOWS} Code/1.103.2 Chrome/138.0.0.0 Electron/37.2.3 Safari/537.36",
    f"{MACINTOSH} Cursor/1.5.5 Chrome/132.0.6834.210 Electron/34.5.8 Safari/537.36",
    f"{MACINTOSH} Kimi/1.0 Chrome/138.0.0.0 Electron/37.2.3 Safari/537.36",
    f"{MACINTOSH} Perplexity/1.3.0 Chrome/138.0.0.0 Electron/37.2.3 Safari/537.36",
    f"{WINDOWS} Chrome/138.0.0.0 Safari/537.36 OPR/122.0.0.0",
    f"{WINDOWS} Chrome/138.0.0.0 Safari/537.36 Edg/138.0.0.0",
    f"{WINDOWS} Chrome/138.0.0.0 YaBrowser/25.6.0.0 Yowser/2.5 Safari/537.36",
    f"{MACINTOSH.replace('537.36', '605.1.15')} Version/18.5 Safari/605.1.15",
    f"{ANDROID} SamsungBrowser/28.0 Chrome/130.0.0.0 Mobile Safari/537.36",
    f"{ANDROID} Chrome/137.0.0.0 Mobile Safari/537.36 EdgA/137.0.0.0",
    f"{ANDROID} Chrome/114.0.0.0 HuaweiBrowser/15.0.4.312 Mobile Safari/537.36",
    f"{ANDROID} Version/4.0 Chrome/137.0.0.0 MQQBrowser/15.6 Mobile Safari/537.36 "
    "MicroMessenger/8.0.60",
    f"{ANDROID} Chrome/110.0.0.0 UCBrowser/13.7.2.1636 Mobile Safari/537.36",
    f"{ANDROID} Version/4.0 Chrome/137.0.0.0 Mobile Safari/537.36 DaumApps/8.9.0",
    f"{ANDROID} Version/4.0 Chrome/137.0.0.0 Mobile Safari/537.36 trill_390603 BytedanceWebview",
    f"{IPHONE} CriOS/138.0.7204.156 Mobile/15E148 Safari/604.1",
    f"{IPHONE} FxiOS/141.0 Mobile/15E148 Safari/605.1.15",
    f"{IPHONE} GSA/380.0.786664972 Mobile/15E148 Safari/604.1",
    f"{IPHONE} Version/18.5 Mobile/15E148 Safari/604.1 Kagi/1.0 Orion/1.3",
    f"{IPHONE} Mobile/15E148 Reddit/Version 2025.30.0",
    f"{IPHONE} Mobile/15E148 Telegram-iOS/11.13",
    f"{IPHONE} Mobile/15E148 Snapchat/13.45.0.52 (like Safari/8621.2.5.10.10, panda)",
    f"{IPHONE} Mobile/15E148 Overcast/2025.7",
    "Dalvik/2.1.0 (Linux; U; Android 15; Pixel 9 Build/BP1A.250505.005)",
    "Mozilla/5.0 (SMART-TV; Linux; Tizen 8.0) AppleWebKit/537.36 Chrome/108.0.5359.1 TV Safari/537.36",
    "Mozilla/5.0 (PlayStation; PlayStation 5/6.00) AppleWebKit/605.1.15 Version/17.0 Safari/605.1.15",
    "Mozilla/5.0 (Windows NT 6.1; WOW64; Trident/7.0; rv:11.0) like Gecko",
    "Opera/9.80 (Windows NT 6.1; WOW64) Presto/2.12.388 Version/12.18",
    "Mozilla/5.0 (compatible; Synapse)",
    "curl/8.14.1",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) "
    "Chrome/156.0.0.0 Safari/537.36",
    "Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0",
    f"{IPHONE} Version/18.5 Mobile/15E148 Safari/604.1",
    # The browsers within applications.
    f"{IPHONE} Mobile/15E148 Instagram 385.0.0.28.84 (iPhone17,1; iOS 18_5; en_US; en; scale=3.00)",
    f"{IPHONE} Mobile/15E148 [FBAN/FBIOS;FBAV/515.0.0.45.107;FBBV/739116463;FBDV/iPhone17,1]",
    f"{IPHONE} Mobile/15E148 [Pinterest/iOS]",
    f"{IPHONE} Mobile/15E148 LinkedInApp/9.31.1614",
    f"{IPHONE} Mobile/15E148 Twitter for iPhone/11.5",
    f"{IPHONE} Version/18.5 Mobile/15E148 Safari/604.1 Ecosia ios@11.2.0.2301",
    f"{ANDROID} Chrome/137.0.0.0 Whale/1.0.0.0 Mobile Safari/537.36 NAVER(inapp; search; 2000; 12.13)",
    f"{ANDROID} Version/4.0 Chrome/137.0.0.0 Mobile Safari/537.36 YandexSearch/24.115/apad",
    f"{ANDROID} Chrome/137.0.0.0 YaBrowser/25.6.0.371.00 SA/3 Mobile Safari/537.36",
    f"{ANDROID} Chrome/137.0.0.0 Mobile Safari/537.36 Line/15.9.2/IAB",
    f"{ANDROID} Version/4.0 Chrome/137.0.0.0 Mobile Safari/537.36 KAKAOTALK/25.5.2 (INAPP)",
    f"{ANDROID} Version/4.0 Chrome/137.0.0.0 musical_ly_2024 BytedanceWebview/d8a21c6",
    f"{ANDROID} Chrome/137.0.0.0 Mobile Safari/537.36 Snapchat/13.45.0.52",
    f"{ANDROID} Chrome/137.0.0.0 Mobile Safari/537.36 Flipboard/4.3.25/5631",
    f"{ANDROID} Chrome/137.0.0.0 Mobile Safari/537.36 DuckDuckGo/5",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 Claude/1.0 Electron/36",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/537.36 ChatGPT/1.2025 Safari/537.36",
    "Mozilla/5.0 (X11; CUBOT NOTE 20) AppleWebKit/537.36 Chrome/137.0.0.0 Safari/537.36",
]


@pytest.mark.parametrize(
    ("known", "user_agent"), [(known, agent) for known in CRAWLERS for agent in CRAWLERS[known]]
)
def test_crawlers(known: str, user_agent: str) -> None:
    assert KNOWN.class_of(user_agent) == known
    assert KNOWN.class_of(user_agent.upper()) == known


@pytest.mark.parametrize("user_agent", PEOPLE)
def test_people(user_agent: str) -> None:
    assert KNOWN.class_of(user_agent) is None


def test_the_list_is_in_order() -> None:
    crawlers = built_in().crawlers
    assert {one.crawler for one in crawlers} == set(NAMED_CLASSES) == set(CRAWLERS)
    for known in NAMED_CLASSES:
        names = [one.name.lower().lstrip("^") for one in crawlers if one.crawler == known]
        assert names == sorted(names)
    assert all(one.operator for one in crawlers)
    assert built_in().date


def test_each_name_finds_its_crawler() -> None:
    for one in built_in().crawlers:
        said = f"{one.name.removeprefix('^')} 1.0"
        assert KNOWN.crawlers_of(said if one.name[0] == "^" else f"Mozilla/5.0 ({said})")[0] == one


def test_a_release_sees_what_public_lists_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """scripts/new-crawlers reads the formats of three lists."""
    names = {"GPTBot": {}, "FancyBot": {"operator": "Fancy"}, "Google-Extended": {}}
    for content in (
        names,
        {"crawlers": [{"name": name} | about for name, about in names.items()]},
        [
            {"pattern": "GPTBot", "instances": ["Mozilla/5.0 (compatible; GPTBot/1.0)"]},
            {"pattern": "Fancy", "instances": ["FancyBot/1.0"], "url": "https://fancy.example/"},
        ],
    ):
        file = tmp_path / "list.json"
        file.write_text(json.dumps(content))
        monkeypatch.setattr(sys, "argv", ["new-crawlers", str(file)])
        runpy.run_path(str(ROOT / "scripts/new-crawlers"), run_name="__main__")
        printed = capsys.readouterr()
        (line,) = printed.out.splitlines()
        assert line.startswith("Fancy")
        assert printed.err.startswith("1 names are not in the list of ")


@given(st.text(st.characters(codec="latin-1"), max_size=2000))
def test_any_text_is_read_in_no_time(user_agent: str) -> None:
    assert KNOWN.class_of(user_agent) in (None, *CLASSES)


def test_names() -> None:
    agents = UserAgents(
        Crawler(name, "social")
        for name in ("ExampleBot", "^Other/", "+http://example.com/bot", "Two")
    )
    assert agents.class_of("Mozilla/5.0 (compatible; examplebot/1.0)") == "social"
    assert agents.class_of("Other/1.0") == "social"
    assert agents.class_of("Mozilla/5.0 Other/1.0") is None
    assert agents.class_of("MyExampleBot/1.0") is None
    assert agents.class_of("ExampleBots") is None
    assert agents.class_of("Robot (+http://example.com/bot)") == "social"
    assert agents.class_of("Robot (+http://example.com/bots)") is None
    assert [one.name for one in agents.crawlers_of("Two, ExampleBot, Two")] == ["Two", "ExampleBot"]


def _own(tmp_path: Path, text: str) -> dict[str, dict[str, object]]:
    file = tmp_path / "crawlers.toml"
    file.write_text(text, encoding="utf-8")
    more = [{"class": "social", "name": "ExamplePreview"}]
    return {"triggers": {"crawlers_file": str(file), "more": more}}


def test_a_file_of_ones_own_adds_and_changes_crawlers(tmp_path: Path) -> None:
    text = """
    [search]
    ExampleBot = { operator = "Example", domains = ["crawl.example.com"], javascript = true }
    GPTBot = {}
    [left_out]
    ClaudeBot = "refused in front of the proxy"
    """
    origin = {"PRERENDER_ORIGIN": "http://127.0.0.1:1"}
    triggers = triggers_of(load(environ=origin, overrides=_own(tmp_path, text)))
    assert triggers.class_of("ExampleBot/1.0") == "search"
    assert triggers.class_of("GPTBot/1.0") == "search"
    assert triggers.class_of("ClaudeBot/1.0") is None
    assert triggers.class_of("Googlebot/2.1") == "search"
    assert triggers.class_of("ExamplePreview/1.0") == "social"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x", "is not TOML: "),
        ("[serch]", r"\[serch\]: unknown class: give one of search, ai_search, "),
        ("date = 2026", "date: 2026: give a date, such as"),
        ("[search]\nExampleBot = 1", r'\[search\] ExampleBot: give a table, for example \{ operator'),
        ("[search]\nab = {}", r"\[search\] ab: 'ab': give at least 3 characters"),
        ("[search]\nExampleBot = { operater = 'x' }",
         r"\[search\] ExampleBot: operater: unknown key; known: operator, docs, domains, "),
        ("[search]\nExampleBot = { docs = 'x' }", r"\[search\] ExampleBot: docs: 'x': not a URL"),
        ("[search]\nExampleBot = { javascript = 1 }", r"\[search\] ExampleBot: javascript: 1: "),
        ("[search]\nExampleBot = { domains = ['com'] }",
         r"\[search\] ExampleBot: domains: .*'com' is not a domain"),
        ("[search]\nExampleBot = {}\n[feed]\nexamplebot = {}",
         r"\[feed\] examplebot: is also in \[search\]"),
        ("left_out = 1", r"\[left_out\]: give names with reasons"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_file_is_said(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=f"^{problem}"):
        parse(text)
    settings = load(
        environ={"PRERENDER_ORIGIN": "http://127.0.0.1:1"}, overrides=_own(tmp_path, text)
    )
    where = rf"\[triggers\] crawlers_file: {re.escape(str(tmp_path))}/crawlers.toml: "
    with pytest.raises(ConfigError, match=where + problem):
        triggers_of(settings)


@pytest.mark.parametrize(
    ("target", "page"),
    [
        ("/", True),
        ("/a.html", True),
        ("/a.php?x=b.png", True),
        ("/version-1.2", True),
        ("/a.pngs", True),
        ("/a.png", False),
        ("/a.PNG?v=1", False),
        ("/a.woff2", False),
        ("/a.mjs", False),
    ],
)
def test_what_may_be_a_page(target: str, page: bool) -> None:
    assert may_be_page(target) is page
