"""The contents of llms.txt and llms-full.txt."""

from pathlib import Path

from aiohttp import web

from prerender.extensions.markdown.llms import LlmsPage, llms_full_txt, llms_txt
from tests.conftest import StartOrigin, pages
from tests.support.programs import run

FRONT = """<title>Lamps [and more]</title><meta name=description content="Lamps of
  steel."><nav>menu</nav><main><h1>Lamps</h1><p id=p>wait</main>
  <script>p.textContent = 'all of them'</script>"""


async def test_the_files_of_a_site(start_origin: StartOrigin, tmp_path: Path) -> None:
    origin = await pages(
        start_origin,
        {
            "/": FRONT,
            "/about": "<title>About</title><main><h1>About</h1><p>us",
            "/hidden": "<meta name=robots content=noindex><title>x</title><main>hidden",
            "/gone": web.Response(status=404, text="<p>gone", content_type="text/html"),
            "/mine": web.Response(
                text="<p>hidden", content_type="text/html", headers={"Cache-Control": "private"}
            ),
        },
    )
    paths = ("/about", "/", "/hidden", "/gone", "/", "/mine")
    listed = "".join(f"{origin.url}{path}\n" for path in paths)
    gone = f"{origin.url}/gone.xml"
    sources = (gone, "-")
    made = await run("llms", *sources, "--to", str(tmp_path / "public"), stdin=listed.encode())
    assert made.status == 1
    assert f"not read: {gone}: " in made.err
    assert f"skipped: {origin.url}/hidden: robots noindex\n" in made.err
    assert f"skipped: {origin.url}/gone: " in made.err
    assert f"skipped: {origin.url}/mine: its Cache-Control says" in made.err
    assert made.out.startswith(b"2 pages in ")
    assert (tmp_path / "public/llms.txt").read_text("utf-8") == (
        "# Lamps [and more]\n\n> Lamps of steel.\n\n## Pages\n\n"
        f"- [About]({origin.url}/about)\n"
        f"- [Lamps \\[and more\\]]({origin.url}/): Lamps of steel.\n"
    )
    full = (tmp_path / "public/llms-full.txt").read_text("utf-8")
    assert full.startswith(
        f"Source: {origin.url}/about\n\n# About\n\nus\n\nSource: {origin.url}/\n\n# L"
    )
    assert "all of them" in full
    assert "menu" not in full
    assert "hidden" not in full


def test_pages_without_a_description() -> None:
    page = LlmsPage("https://www.example.com/a", "A", "", "text")
    assert llms_txt([page]) == "# A\n\n## Pages\n\n- [A](https://www.example.com/a)\n"
    assert llms_full_txt([page]) == "Source: https://www.example.com/a\n\n# A\n\ntext\n"
