"""`Pattern`: what is looked for by a regular expression that a model, a server or a person brings.

Python's own engine tries every way in which a pattern may fit: `(a+)+$` takes years for fifty
letters. That of `pydantic_core` goes through the text once. It has neither look-ahead nor
references back: a pattern with one of them is refused. But it holds up the whole process meanwhile,
and takes the longer for each character the larger the pattern is when its repetitions are written
out. So the size is known before, and a large one is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from pydantic_core import SchemaError, SchemaValidator, core_schema

MAX_PATTERN_SIZE = 300_000
"""The largest size of a pattern, and of all of a schema, with the ranges of its classes: they are
compiled in less than a second."""
MAX_STATES = 10_000
"""The largest size of a pattern: above it a character takes longer than a microsecond for each."""
CLASS_SIZE = 100
"""The size of a class such as `\\w` in a pattern to compile: it has many ranges of characters."""
_SLOWER = 1_000
"""The size of a pattern that adds one more step of each of its characters to each step: what is
repeated and may be empty is followed from each other repetition."""
_REPEATED = re.compile(r"\{([^{}]*)\}")
_NUMBER = re.compile(r"[0-9]+")
_PARTS = re.compile(r"\{[^{}]*\}|.", re.DOTALL)


class Pattern:
    """A regular expression that is looked for in a bounded time.

    Raises:
        ValueError: if it is no pattern, or one that cannot be looked for in a bounded time.

    """

    def __init__(self, pattern: str) -> None:
        size = size_of_pattern(pattern)
        if size > MAX_STATES or size_of_pattern(pattern, CLASS_SIZE) > MAX_PATTERN_SIZE:
            raise ValueError("it repeats too much")
        try:
            validator = SchemaValidator(
                core_schema.str_schema(pattern=pattern, regex_engine="rust-regex", strict=True)
            )
        except SchemaError as error:
            *_, why = str(error).strip().splitlines()
            raise ValueError(why.strip()) from error
        self.finds: Callable[[str], bool] = validator.isinstance_python
        """Whether a text holds what the pattern describes, somewhere."""
        self.steps_a_character: int = size * (1 + size // _SLOWER)
        """The most steps for a character of a text. A step takes at most 20 nanoseconds."""


def size_of_pattern(pattern: str, of_class: int = 1) -> int:
    """The number of single characters and classes of a pattern, its repetitions written out.

    Never less than that: what is not clear counts as repeated by all numbers in it.
    """
    flat = re.sub(r"\\.", "\\\\", pattern, flags=re.DOTALL)
    flat = re.sub(r"\[[\x00-\x5a^-\x7f]*\]", "x", flat)
    flat = re.sub(r"\[[^\[\]]*\]", "\\\\", flat)
    atoms = len(flat) + of_class * (flat.count("\\") + flat.count("."))
    if "[" in flat or "]" in flat or re.search(r"\(\?[a-zA-Z-]*x", flat):
        times = 1
        for repeated in _REPEATED.findall(flat):
            times = min(times * _most(repeated), MAX_PATTERN_SIZE + 1)
        return atoms * times
    groups, last = [0], 0
    for part in _PARTS.findall(flat):
        if part == "(":
            groups.append(0)
        elif len(part) > 1:
            times = _most(part)
            groups[-1] += last * (times - 1)
            last *= times
        else:
            inside = groups.pop() if part == ")" and len(groups) > 1 else 0
            last = inside + (of_class if part in "\\." else 1)
            groups[-1] += last
    return sum(groups)


def _most(repeated: str) -> int:
    """The largest number in the braces of a repetition; 1 without one."""
    numbers = (
        int(each) if len(each) < 7 else MAX_PATTERN_SIZE for each in _NUMBER.findall(repeated)
    )
    return max(numbers, default=1) or 1
