"""Long answers as several messages."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.slack.split import close_open, parts, split, summary


def fences_balanced(part: str) -> bool:
    return len(re.findall(r"^\s*(?:> )?```", part, re.MULTILINE)) % 2 == 0


def test_short_text_is_one_part() -> None:
    """What fits is left as it is."""
    assert split("# A\n\n```py\nx\n```\n") == ["# A\n\n```py\nx\n```\n"]


@pytest.mark.parametrize("text", ["", " ", "\n" * 30_000])
def test_nothing_to_say_is_no_part(text: str) -> None:
    """There is never an empty part."""
    assert split(text) == []


@pytest.mark.parametrize(
    ("unit", "end"),
    [
        ("word " * 20 + "\n\n", "\n\n"),
        ("word " * 20 + "\n", "\n"),
        ("A word. ", ". "),
        ("word ", " "),
    ],
)
def test_best_place(unit: str, end: str) -> None:
    """A part ends at a paragraph, else at a line, else at a sentence, else at a space."""
    found = split(unit * 600, 1_000)

    assert all(part.endswith(end) for part in found)
    assert all(500 <= len(part) <= 1_000 for part in found[:-1])


def test_a_word_without_end() -> None:
    """Text without any space is cut at the limit."""
    assert [len(part) for part in split("x" * 2_500, 1_000)] == [999, 999, 502]


def test_long_code_in_a_long_answer() -> None:
    """30,000 characters with 15,000 of code: ordered parts, each with balanced fences."""
    code = "".join(f"line_{n} = {n}\n" for n in range(900))
    text = "Intro. " * 1_000 + f"\n\n```python\n{code}```\n\n" + "Outro. " * 1_000
    found = split(text)

    assert all(len(part) <= 11_000 and fences_balanced(part) for part in found)
    numbers = re.findall(r"line_(\d+) =", "".join(found))
    assert numbers == [str(n) for n in range(900)]
    assert any(part.startswith("```python\nline_") for part in found[1:])
    assert not any(re.search(r"```python\n```", part) for part in found)


def test_table_header_is_repeated() -> None:
    """Every part of a table begins with the table's header."""
    head = "| a | b |\n|---|---|\n"
    found = split(head + "".join(f"| {n} | x |\n" for n in range(300)), 1_000)

    assert len(found) > 1
    assert all(part.startswith(head) for part in found)
    assert re.findall(r"\| (\d+) \|", "".join(found)) == [str(n) for n in range(300)]


def test_fence_in_a_list() -> None:
    """Code of a list item stands at the margin in a part that has no list."""
    code = "".join(f"    x{n}\n" for n in range(200))
    found = split(f"1. Do this:\n\n    ```sh\n{code}    ```\n\nDone.", 600)

    assert all(part.startswith("```sh\nx") for part in found[1:-1])
    assert found[-1].endswith("\n```\n\nDone.")


def test_fence_in_a_quotation() -> None:
    """A quoted fence is opened and closed again inside the quotation."""
    code = "".join(f"> x{n}\n" for n in range(200))
    found = split(f"> ```sh\n{code}> ```\n", 600)

    assert all(
        part.startswith("> ```sh\n> x") and part.rstrip().endswith("\n> ```") for part in found
    )


WORD = st.sampled_from(["word", "a longer phrase of words", "End.", "naïve", "日本", "x" * 90])
PARAGRAPH = st.lists(WORD, min_size=1, max_size=60).map(" ".join)
CODE = st.lists(st.sampled_from(["", "x = 1", "    y", "# c", "z" * 700]), max_size=60).map(
    lambda lines: "\n".join(["```py", *lines, "```"])
)
TABLE = st.integers(1, 60).map(lambda n: "| a | b |\n|---|---|\n" + "\n".join(["| 1 | 2 |"] * n))
DOCUMENT = st.lists(PARAGRAPH | CODE | TABLE, max_size=8).map("\n\n".join)


@given(DOCUMENT, st.integers(400, 2_000))
def test_documents_are_split_whole(text: str, limit: int) -> None:
    """Bodies together are the text; what is added are fences and headers; fences balance."""
    found = parts(text, limit)

    assert "".join(part.body for part in found) == text
    for part in found:
        assert len(part.text) <= limit
        assert part.prefix in ("", "```py\n", "| a | b |\n|---|---|\n")
        assert part.suffix in ("", "```", "\n```")
        assert fences_balanced(part.text)


@given(st.text(alphabet="ab `~|->\n\r\t.1*", max_size=1_500), st.integers(400, 800))
def test_any_text_is_split_whole(text: str, limit: int) -> None:
    """Whatever the text, nothing is lost and no part is too long or empty."""
    found = parts(text, limit)

    assert "".join(part.body for part in found) == text
    assert all(len(part.text) <= limit for part in found)
    assert all(part.strip() for part in split(text, limit))


def test_summary() -> None:
    """The message beside a file begins like the answer and says how long it is."""
    found = summary("One.\n\n" + "Two. " * 30_000)

    assert found.startswith("One.\n\nTwo.")
    assert found.endswith("_The whole answer (150,006 characters) is in the attached file._")
    assert len(found) < 1_700


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("done `x` and ```y```", "done `x` and ```y```"),
        ("see `x", "see `x`"),
        ("see ``x ` y", "see ``x ` y``"),
        ("see `", "see"),
        ("`a\n\nsee b", "`a\n\nsee b"),
        ("say\n```py\nx", "say\n```py\nx\n```"),
        ("say\n```py\nx\n", "say\n```py\nx\n```"),
        ("say\n```py\nx\n``", "say\n```py\nx\n```"),
        ("say\n```py\nx\n```", "say\n```py\nx\n```"),
        ("say\n```py", "say"),
        ("say\n``", "say"),
        ("```", "```\n```"),
        ("~~~\n```\nx", "~~~\n```\nx\n~~~"),
        ("```\n`\n```\nsee `x", "```\n`\n```\nsee `x`"),
    ],
)
def test_close_open(text: str, shown: str) -> None:
    """A growing text is shown with its fence or code span closed."""
    assert close_open(text) == shown


@given(DOCUMENT, st.integers(0, 3_000))
def test_every_prefix_is_whole(text: str, end: int) -> None:
    """At whatever moment a stream is shown, its fences balance."""
    assert fences_balanced(close_open(text[:end]))
