"""What screen readers announce: read from Chromium's accessibility tree, and compared."""

import pytest

from prerender.content.accessibility import Announcement, announced, lost
from tests.support.plain_browser import plain_browser

PAGE = """<nav aria-label="Main"><a href="/a">A</a></nav><h2>News</h2><p>Text <b>here</b></p>
<img alt="A chart" src="data:,"><img alt="" src="data:,"><button aria-expanded="true">Menu</button>
<input type="checkbox" id="c" checked><label for="c">Agree</label><input required aria-label="Name">
<div aria-hidden="true"><h3>Unheard</h3></div><ul><li>One</li></ul>"""


async def test_what_chromium_says() -> None:
    async with plain_browser() as browser:
        target = await browser.call("Target.createTarget", url="about:blank")
        page = await browser.attach(target["targetId"])
        await page.evaluate(f"document.body.innerHTML = {PAGE!r}")
        found = announced((await page.call("Accessibility.getFullAXTree"))["nodes"])
    assert sorted(map(str, found)) == sorted(
        [
            "navigation “Main”",
            "link “A”",
            "heading “News”, level 2",
            "image “A chart”",
            "button “Menu”, expanded",
            "checkbox “Agree”, checked",
            "textbox “Name”, required",
            "list",
            "listitem, level 1",
        ]
    )


MENU = Announcement("button", "Menu", ("expanded",))
NEWS = Announcement("link", "3 news", ())


@pytest.mark.parametrize(
    ("snapshot", "expected"),
    [
        ((MENU, NEWS, NEWS), []),
        ((NEWS, MENU, NEWS, MENU), []),
        ((MENU, NEWS), ["link “3 news”"]),
        ((MENU, NEWS, Announcement("link", "17 news", ())), []),
        ((Announcement("button", "Menu", ()), NEWS, NEWS), ["button “Menu”, expanded"]),
        ((Announcement("button", "", ("expanded",)), NEWS, NEWS), ["button “Menu”, expanded"]),
        ((), ["button “Menu”, expanded", "link “3 news”", "link “3 news”"]),
    ],
)
def test_what_is_lost(snapshot: tuple[Announcement, ...], expected: list[str]) -> None:
    assert lost((MENU, NEWS, NEWS), snapshot) == expected
