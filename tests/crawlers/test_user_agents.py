"""Crawlers and their classes, by User-Agent headers seen in practice."""

import tomllib
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prerender.config.types import CLASSES
from prerender.crawlers.triggers import may_be_page
from prerender.crawlers.user_agents import UserAgents, known_names

KNOWN = UserAgents(known_names())
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
        "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko); compatible; ChatGPT-User/1.0; "
        "+https://openai.com/bot",
        "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; Claude-User/1.0; "
        "+Claude-User@anthropic.com)",
        "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; Perplexity-User/1.0; "
        "+https://perplexity.ai/perplexity-user)",
    ],
    "social": [
        "Lemmy/0.19.3; +https://lemmy.example",
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
}
PEOPLE = [
    "",
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


def test_the_list_has_the_classes_there_are_and_nothing_twice() -> None:
    text = (files("prerender.crawlers") / "user_agents.toml").read_text(encoding="utf-8")
    names = tomllib.loads(text)
    domains = names.pop("domains")
    # Signed agents have no names.
    assert set(names) == set(CLASSES) - {"signed"} == set(CRAWLERS)
    flat = [name.lower() for known in names.values() for name in known]
    assert len(flat) == len(set(flat))
    for known in CRAWLERS:
        assert names[known] == sorted(names[known], key=lambda name: name.lower().lstrip("^"))
    assert {name.lower() for name in domains} <= set(flat)
    assert list(domains) == sorted(domains, key=str.lower)
    for name, known_by in domains.items():
        assert known_by, name
        assert all(domain == domain.lower().strip(".") for domain in known_by)


@given(st.text(st.characters(codec="latin-1"), max_size=2000))
def test_any_text_is_read_in_no_time(user_agent: str) -> None:
    assert KNOWN.class_of(user_agent) in (None, *CLASSES)


def test_more_names() -> None:
    agents = UserAgents({"social": ("ExampleBot", "^Other/")})
    assert agents.class_of("Mozilla/5.0 (compatible; examplebot/1.0)") == "social"
    assert agents.class_of("Other/1.0") == "social"
    assert agents.class_of("Mozilla/5.0 Other/1.0") is None
    assert agents.class_of("MyExampleBot/1.0") is None
    assert agents.class_of("ExampleBots") is None


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
