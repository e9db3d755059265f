"""What a reader sees is in the Markdown: markup of documentation tools, libraries and shops."""

import pytest

from prerender.snapshots.tokens import tokens_of
from tests.extensions.markdown.converting import content_of

URL = "https://www.example.com/p"


@pytest.mark.parametrize(
    ("html", "markdown"),
    [
        # Links of headings to themselves: Sphinx, VitePress, GitHub, docsify.
        ("<h1>A<a class=headerlink href='#a' title=Link>¶</a></h1>", "# A"),
        ("<h2>A <a class=header-anchor href='#a' aria-label='Permalink'>\u200b</a></h2>", "## A"),
        ("<div><h1>A</h1><a class=anchor href='#a' aria-label=A><svg></svg></a></div>", "# A"),
        ("<h2><a href='#/?id=a'><span>A</span></a></h2>", "## A"),
        ("<h2><a href='/b'>B</a></h2>", "## [B](https://www.example.com/b)"),
        ("<p>a <a href='#b'>b</a></p>", "a [b](https://www.example.com/p#b)"),
        # Line numbers: Sphinx, Pygments in tables with a file name (MkDocs), Rouge (Jekyll).
        ("<pre><span class=linenos>1</span>a\n<span class=linenos>2</span>b</pre>", "```\na\nb\n```"),
        (
            "<div class='highlight language-py'><table class=highlighttable><tr><th colspan=2>"
            "<span class=filename>a.py</span><tr><td class=linenos><pre>1\n2</pre>"
            "<td class=code><pre>a\nb</pre></table></div>",
            "a.py\n\n```py\na\nb\n```",
        ),
        (
            "<table><tr><td class='gutter gl'><pre>1</pre><td class=code><pre>a</pre></table>",
            "```\na\n```",
        ),
        # VitePress names the language for readers, too. Buttons that copy are not content.
        (
            "<div class='language-js'><button title='Copy Code' class=copy></button><span class=lang>js"
            "</span><pre><code>a()</code></pre></div><button>Copy</button><button>Buy</button>",
            "```js\na()\n```\n\nBuy",
        ),
        # JSON of Redoc, in lists; code with line ends.
        (
            '<code><button></button><span>{</span><ul><li><div><span>"a"</span>: <span>1</span>,</div>'
            "<li><div>\"b\": <span>[</span><ul><li><div>2</div></ul><span>]</span></div></ul>}</code>",
            '```\n{\n  "a" : 1,\n  "b": [\n    2\n  ]\n}\n```',
        ),
        ("<code>a<br>b</code>", "```\na\nb\n```"),
        # Tables by ARIA (Tabulator, AG Grid), tables for layout, and both (FullCalendar).
        (
            "<div role=grid><div role=row><div role=columnheader><p>A</p></div><div role=columnheader>B"
            "</div></div><div><div role=row><div role=gridcell>1</div><div role=gridcell>2</div></div>"
            "</div></div>",
            "| A | B |\n| --- | --- |\n| 1 | 2 |",
        ),
        (
            "<table role=grid><tr><td><table role=presentation><tr role=row><th role=columnheader>A"
            "</table><tr><td><table role=presentation><tr role=row><td role=gridcell>1</table></table>",
            "| A |\n| --- |\n| 1 |",
        ),
        # Not in cells: captions (W3C, MDN), toolbars, footers, text in rows; tables made of lists.
        (
            "<div role=table aria-describedby=d><div id=d>Elements</div><div role=rowgroup>"
            "<div role=row><span role=columnheader>A</span><span role=columnheader>B</span></div></div>"
            "between<div role=rowgroup><div role=row><span role=cell>1</span><span role=cell>2</span>"
            "</div></div><p>Footer</p></div>",
            "Elements\n\n| A | B |\n| --- | --- |\n| 1 | 2 |\n\nbetween\n\nFooter",
        ),
        (
            "<div role=grid><div role=toolbar><button>Filter</button></div><div role=row>"
            "<div role=columnheader>A</div><i aria-hidden=true>icon</i></div>"
            "<div role=row>No results</div></div>",
            "Filter\n\n| A |\n| --- |\n| No results |",
        ),
        (
            "<ul role=table><li role=row><b role=cell>1</b> and <b role=cell>2</b>!</ul>end",
            "| 1 | 2 | and ! |\n| --- | --- | --- |\n\nend",
        ),
        ("<div role=table><div role=row>No results</div></div>", "No results"),
        (
            "<table role=grid><caption>A</caption><tr><td>b<table role=presentation><tr role=row>"
            "<td role=gridcell>1</table>c</table>",
            "A\n\nb\n\n| 1 |\n| --- |\n\nc",
        ),
        ("<table role=presentation><tr><td><h2>A</h2><td><ul><li>b</ul></table>", "## A\n\n- b"),
        (
            "<table><tr><td><table><tr><th>A<tr><td>1</table></table>",
            "| A |\n| --- |\n| 1 |",
        ),
        (
            "<table><tr><th>A<th>B<tr><td><div><p>1</p></div><td><p>2</p><p>3</p></table>",
            "| A | B |\n| --- | --- |\n| 1 | 2<br>3 |",
        ),
        # Pictures that are loaded late; decoration; links without text.
        (
            "<a href=/b><img src='data:image/gif;base64,R0' data-src=/a.jpg alt=A></a>",
            "[![A](https://www.example.com/a.jpg)](https://www.example.com/b)",
        ),
        ("<img srcset='/s.jpg 300w, /l.jpg 600w' alt=A>", "![A](https://www.example.com/s.jpg)"),
        ("<p>a <a href=/x><img src=i.svg alt=''></a> <a href=/y><svg></svg></a>", "a"),
        ("<p><a href=/x aria-label='Share'><svg></svg></a>", "[Share](https://www.example.com/x)"),
        (
            "<p><a href=/x><svg><title>Chat</title></svg></a>",
            "[Chat](https://www.example.com/x)",
        ),
        # Charts and diagrams: their name, or their labels.
        ("<p><svg role=img aria-label='Sales rose'><text>10</text></svg>", "Sales rose"),
        ("<svg><g><text>10</text></g><foreignObject><div>20</div></foreignObject></svg>", "10, 20"),
        ("<p>a<svg aria-hidden=true><text>10</text></svg>", "a"),
        (
            "<p><math><mi>E</mi><annotation encoding='application/x-tex'>E_a*b</annotation></math>",
            "`$E_a*b$`",
        ),
        # Panels of tabs, which a click shows; neighbours that styles set apart.
        (
            "<button role=tab>A</button><button role=tab>B</button><div role=tabpanel hidden>a</div>"
            "<div role=tabpanel style='display: none'>b</div>",
            "A B\n\na\n\nb",
        ),
        ("<a href=/a>A</a><a href=/b>B</a>!", "[A](https://www.example.com/a) "
         "[B](https://www.example.com/b)!"),
        # Sidebars within main (docsify), menus (Redoc), what screen readers announce (reveal.js).
        ("<main><aside class=sidebar>m</aside><ul role=menu><li>m</ul><p>a</main>", "a"),
        ("<main><aside class=note>n</aside><p>a</main>", "n\n\na"),
        ("<p>a<div aria-live=polite style='clip: rect(1px, 1px, 1px, 1px)'>a</div>", "a"),
        # Powers, charges and notes are told from what they follow; not ordinals, marks and links.
        ("<p>10<sup>6</sup> m<sup>-2</sup>, <i>x</i><sup>n</sup>, (a)<sup>n+1</sup>",
         "10^6 m^-2, *x*^n, (a)^(n+1)"),
        ("<p>2<sup>2<sup>3</sup></sup>, x<sup>2<sup>y</sup></sup>", "2^(2^3), x^(2^y)"),
        ("<p>H<sub>2</sub>O, SO<sub>4</sub><sup>2\u2212</sup>", "H2O, SO4^2\u2212"),
        ("<p>1<sup>st</sup>, X<sup>e</sup>, 1<sup>er</sup>, A<sup>TM</sup> B<sup>®</sup> C<sup>*</sup>",
         "1st, Xe, 1er, ATM B® C\\*"),
        ("<p>word<sup>1</sup> word<sup><a href='#f'>1</a></sup> word<a href='#f'><sup>1</sup></a> "
         "word<sup>[2]</sup><br><sup>1</sup> Note",
         "word^1 word[1](https://www.example.com/p#f) word[1](https://www.example.com/p#f) "
         "word[2]  \n1 Note"),
        # Terms are told from their definitions; captions are emphasized once.
        ("<dl><dt>A<dd>a</dl>", "**A**\n\na"),
        ("<figure><img src=a.png alt=A><figcaption>The <em>A</em></figcaption></figure>",
         "![A](https://www.example.com/a.png)\n\n*The A*"),
    ],
)  # fmt: skip
def test_what_a_reader_sees(html: str, markdown: str) -> None:
    assert content_of(html, URL) == markdown


@pytest.mark.parametrize(
    ("text", "tokens"), [("", 0), ("a", 1), ("word" * 100, 100), ("ランプ", 2), ("ä" * 10, 5)]
)
def test_tokens(text: str, tokens: int) -> None:
    assert tokens_of(text) == tokens
