"""What is kept of an error's message."""

from __future__ import annotations

from understudy._base.error_texts import MAX_CHARACTERS, MAX_LINES, error_text, first_lines


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text either")


def test_a_short_message_is_kept_as_it_is() -> None:
    assert error_text(ValueError("no\r\nnetwork\n")) == "ValueError: no\r\nnetwork\n"


def test_of_many_lines_the_first_ones_are_kept() -> None:
    lines = [f"line {n}" for n in range(1000)]
    kept = first_lines("\n".join(lines))
    assert kept.splitlines()[: MAX_LINES - 1] == lines[: MAX_LINES - 1]
    assert len(kept.splitlines()) == MAX_LINES
    assert kept.endswith("... (8,889 characters)")


def test_of_a_long_line_its_beginning_is_kept() -> None:
    kept = first_lines("x" * 50_000)
    assert kept == "x" * MAX_CHARACTERS + "... (50,000 characters)"


def test_a_message_that_no_store_could_keep_becomes_one_that_it_can() -> None:
    assert error_text(OSError("no file \udcff.txt")) == "OSError: no file \ufffd.txt"


def test_an_error_without_a_message_is_named() -> None:
    assert error_text(KeyError()) == "KeyError"
    assert error_text(Unprintable()) == "Unprintable: (no text: its __str__ raised)"
