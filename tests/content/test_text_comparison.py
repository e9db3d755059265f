"""The similarity of two texts, what each lacks, and both side by side."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prerender.content.text_comparison import compare, side_by_side

WORDS = st.text("abcdefgh", min_size=1, max_size=3)
TEXTS = st.lists(st.lists(WORDS, min_size=1, max_size=8).map(" ".join), max_size=8)
STORY = "It was late when the old lamp went out and nobody in the house had seen it go"


@given(TEXTS)
def test_a_text_is_like_itself(texts: list[str]) -> None:
    same = compare(texts, texts)
    assert (same.similarity, same.only_first, same.only_second) == (1.0, (), ())


@given(TEXTS, TEXTS)
def test_it_is_the_same_from_both_sides(one: list[str], other: list[str]) -> None:
    there, back = compare(one, other), compare(other, one)
    assert there.similarity == back.similarity
    assert (there.only_first, there.only_second) == (back.only_second, back.only_first)
    assert 0 <= there.similarity <= 1


@given(TEXTS, st.integers(0, 8))
def test_a_passage_that_is_put_in_is_found(texts: list[str], place: int) -> None:
    passage = "CHEAP PILLS AND WATCHES FOR EVERYONE"
    planted = [*texts[:place], passage, *texts[place:]]
    result = compare(planted, texts)
    assert [found.text for found in result.only_first] == [passage]
    assert [found.words for found in result.only_first] == [6]
    assert compare(texts, planted).only_second == result.only_first


@pytest.mark.parametrize(
    ("first", "second", "similarity", "only_first", "only_second"),
    [
        ([], [], 1.0, [], []),
        (["a"], [], 0.0, ["a"], []),
        (["Hello, world"], ["hello world!"], 1.0, [], []),
        ([STORY, "and so on"], ["And so on", STORY], 1.0, [], []),
        ([STORY.replace("lamp", "car")], [STORY], 34 / 36, ["car"], ["lamp"]),
        (["12:01", STORY], ["12:02", STORY], 38 / 40, ["01"], ["02"]),
        (["one", "two"], ["two", "one"], 1.0, [], []),
        (["größe", "naïve café"], ["GRÖSSE Naïve CAFÉ"], 1.0, [], []),
    ],
)
def test_differences(
    first: list[str],
    second: list[str],
    similarity: float,
    only_first: list[str],
    only_second: list[str],
) -> None:
    result = compare(first, second)
    assert result.similarity == pytest.approx(similarity)
    assert [passage.text for passage in result.only_first] == only_first
    assert [passage.text for passage in result.only_second] == only_second


def test_what_is_known_may_be_there_and_is_not_missed() -> None:
    menu = "Home Products About us Contact"
    assert compare([menu, STORY], [STORY], [menu]).similarity == 1.0
    assert compare([STORY], [STORY], [menu]).similarity == 1.0
    assert compare([menu, STORY], [STORY]).similarity < 1.0


@pytest.mark.heavy
def test_a_large_page_takes_no_long_time() -> None:
    words = [f"word{number % 997}" for number in range(200_000)]
    assert compare([" ".join(words)], [" ".join(words[::-1])]).similarity < 1


@pytest.mark.parametrize(
    ("left", "right", "passages"),
    [
        ("", "", []),
        ("a b", "a b", [("same", "a b", "a b")]),
        ("a  b\n\n c", "a b\nc", [("same", "a b\nc", "a b\nc")]),
        ("a b c", "a x c", [("same", "a", "a"), ("changed", "b", "x"), ("same", "c", "c")]),
        ("a\nb", "a", [("same", "a", "a"), ("changed", "b", "")]),
        ("", "new", [("changed", "", "new")]),
        ("one line", "two\nlines here", [("changed", "one line", "two lines here")]),
    ],
)
def test_texts_side_by_side(left: str, right: str, passages: list[tuple[str, str, str]]) -> None:
    found, cut = side_by_side(left, right)
    assert [(one.kind, one.left, one.right) for one in found] == passages
    assert not cut


_lines = st.lists(st.text(st.sampled_from("ab \u00e4\n"), max_size=8), max_size=12).map("\n".join)


@given(_lines, _lines)
def test_nothing_is_lost_side_by_side(left: str, right: str) -> None:
    found, _ = side_by_side(left, right)
    assert " ".join(one.left for one in found).split() == left.split()
    assert " ".join(one.right for one in found).split() == right.split()
    assert all(one.left.split() == one.right.split() for one in found if one.kind == "same")


@pytest.mark.heavy
def test_long_texts_are_cut_side_by_side() -> None:
    left = "\n".join(f"line {n % 7} {n}" for n in range(20_000))
    right = "\n".join(f"line {n % 11} {n}" for n in range(20_000))
    assert side_by_side(left, right)[1]
    words, _ = side_by_side("word " * 100_000, "other " * 100_000)
    assert [one.kind for one in words] == ["changed"]
