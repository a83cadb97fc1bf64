"""JSON schemas: made from a type, checked when they are given, and validated by.

They may come from anywhere, such as a server: whatever is in one, it is checked in a bounded time.
`jsonschema` is imported where a schema is given or an answer is checked, and nowhere before.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from datetime import datetime, time
from functools import cache, partial
from typing import Any, cast

from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError

from understudy._base.json_values import checked_json, shown
from understudy._base.patterns import CLASS_SIZE, MAX_PATTERN_SIZE, Pattern, size_of_pattern
from understudy.errors import UsageError

MAX_FAULTS = 5
"""The largest number of faults that are reported of a value."""
MAX_STEPS = 100_000
"""Keywords that are looked at for one value: a small schema may ask for more than anybody waits."""
MAX_REGEX = 100
"""Characters of a value of the format "regex" that is compiled."""
_OF_PATTERNS = 500
"""The steps of a pattern that take as long as a keyword."""
_look: ContextVar[_Look] = ContextVar("look")
"""The look at the value that is validated now."""
_UNCOUNTED = {"patternProperties", "dependentSchemas", "$dynamicRef", "$recursiveRef"}
Fault = tuple[tuple[int | str, ...], str]
"""The place where a value does not fit, as a path into the value, and what is wrong there."""


def json_schema_of(given: object, *, what: str) -> dict[str, Any]:
    """The JSON schema that is given as itself, as a Pydantic model or as any other type.

    Args:
        given: a mapping, or a type such as a Pydantic model, `int` or `Literal["a", "b"]`.
        what: names it in errors.

    Raises:
        UsageError: if it is none, refers to what it does not hold, or cannot be stored.

    """
    if isinstance(given, Mapping):
        schema = checked_json(given, what=what)
    elif (
        given is None
        or isinstance(given, (str, bytes, int, float, list, tuple, set))
        or inspect.isroutine(given)
    ):
        raise UsageError(
            f"{what} takes a JSON schema as a dict, a Pydantic model or a type, got {shown(given)}"
        )
    else:
        try:
            schema = TypeAdapter(cast("Any", given)).json_schema()
        except (PydanticUserError, TypeError, NameError) as error:
            raise UsageError(f"{what}: {shown(given)} has no JSON schema: {error}") from error
        schema = checked_json(schema, what=what)
    _check(schema, what)
    return schema


def faults_of(schema: Mapping[str, Any], value: object) -> tuple[Fault, ...]:
    """The places where this value does not fit, each with its deepest fault; empty if it fits.

    Nothing is fetched: a schema that refers to what it does not hold fits no value.
    """
    from jsonschema.exceptions import best_match

    _look.set(_Look())
    try:
        found = sorted(_validator(schema).iter_errors(value), key=lambda e: list(map(str, e.path)))
        faults = (
            fault
            for error in found[:MAX_FAULTS]
            for fault in _faults_in(best_match([error]) or error)
        )
        return tuple(dict.fromkeys(faults))
    except Exception as error:  # whatever a schema leads to: it is data, and was not tried before
        return (((), f"it cannot be checked: {type(error).__name__}: {error}"),)


def fault_text(faults: tuple[Fault, ...]) -> str:
    """The faults in a line, each with its field."""
    return "; ".join(
        f"{'.'.join(map(str, where))}: {why}" if where else why for where, why in faults
    )


def _faults_in(error: Any) -> Iterator[Fault]:
    place, given = tuple(error.absolute_path), error.instance
    if error.validator == "required" and isinstance(given, dict):
        for name in error.validator_value:
            if name not in given:
                yield (*place, name), "it is missing"
    elif len(error.message) <= 500:
        yield place, str(error.message)
    else:  # the whole value would be in its message
        yield place, f"{shown(given)} does not fit its {error.validator!r}"


def _validator(schema: Mapping[str, Any]) -> Any:
    from jsonschema import Draft202012Validator, FormatChecker
    from jsonschema.validators import validator_for
    from referencing import Registry

    checker = FormatChecker()
    checker.checkers = {
        **checker.checkers,
        "date-time": (_is_date_time, ValueError),
        "time": (_is_time, ValueError),
        "regex": (_is_regex, re.error),
    }
    of = _counting(validator_for(schema, default=Draft202012Validator))
    # Without its name of a dialect, by which a schema that refers to itself would not be counted.
    body = {name: value for name, value in schema.items() if name != "$schema"}
    # With a registry of its own it fetches nothing that a schema refers to.
    return of(body, format_checker=checker, registry=Registry())


@cache
def _counting(of: Any) -> Any:
    """This class of validators, which gives up after `MAX_STEPS`."""
    from jsonschema.validators import extend

    def counted(check: Any) -> Any:
        def checked(*given: Any) -> Iterator[Any]:
            look = _look.get()
            look.take(1)
            for fault in check(*given) or ():
                look.take(1)  # all of them are kept until the end
                yield fault

        return checked

    checks = {
        **of.VALIDATORS,
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "uniqueItems": _unique_items,
    }
    for name, names_a_step in (("enum", 10), ("required", 100)):
        checks[name] = partial(_listed, of.VALIDATORS[name], names_a_step)
    others = of.VALIDATORS["additionalProperties"]
    checks["additionalProperties"] = partial(_additional_properties, others)
    return extend(of, {name: counted(check) for name, check in checks.items()})


class _Look:
    """What one look at a value has used of its steps, and the patterns that it came to."""

    def __init__(self) -> None:
        self._left = MAX_STEPS
        self._patterns: dict[str, Pattern] = {}

    def take(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise ValueError(f"it takes more than {MAX_STEPS:,} steps")

    def finds(self, pattern: str, text: str) -> bool:
        known = self._patterns.get(pattern)
        if known is None:
            self.take(size_of_pattern(pattern, CLASS_SIZE) // _OF_PATTERNS)
            known = self._patterns[pattern] = Pattern(pattern)
        self.take(known.steps_a_character * len(text) // _OF_PATTERNS)
        return known.finds(text)


def _listed(
    check: Any, names_a_step: int, validator: Any, listed: Any, value: Any, schema: Any
) -> Iterator[Any]:
    """As the library, which looks at each of what a keyword lists."""
    _look.get().take(len(listed) // names_a_step)
    yield from check(validator, listed, value, schema) or ()


def _unique_items(validator: Any, is_unique: Any, value: Any, schema: Any) -> Iterator[Any]:
    """Check by hashes that no two items are equal: `jsonschema` compares each with all others."""
    from jsonschema import ValidationError

    if is_unique and validator.is_type(value, "array"):
        seen = set()
        for item in value:
            seen.add(_hashable(item, _look.get()))
        if len(seen) < len(value):
            yield ValidationError(f"{shown(value)} has non-unique elements")


def _hashable(value: Any, look: _Look) -> Any:
    """A key that is equal for equal JSON values and no others: 1 equals 1.0, and not true."""
    look.take(1)
    if isinstance(value, dict):
        return frozenset((name, _hashable(each, look)) for name, each in value.items())
    if isinstance(value, list):
        return tuple(_hashable(each, look) for each in value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        # As text: numbers can be chosen so that their hashes are equal.
        return float, hex(int(value)) if value == int(value) else float(value).hex()
    return type(value), value


# The library looks for patterns by `re`, in these three and where `_check_bounded` refuses them.


def _pattern(validator: Any, pattern: str, value: Any, schema: Any) -> Iterator[Any]:
    from jsonschema import ValidationError

    if validator.is_type(value, "string") and not _look.get().finds(pattern, value):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, given: Any, value: Any, schema: Any) -> Iterator[Any]:
    if validator.is_type(value, "object"):
        for pattern, inner in given.items():
            for name, each in value.items():
                if _look.get().finds(pattern, name):
                    yield from validator.descend(each, inner, path=name, schema_path=pattern)


def _additional_properties(
    check: Any, validator: Any, given: Any, value: Any, schema: Any
) -> Iterator[Any]:
    patterns = schema.get("patternProperties", {})
    if patterns and validator.is_type(value, "object"):
        look = _look.get()
        value = {
            name: each
            for name, each in value.items()
            if not any(look.finds(pattern, name) for pattern in patterns)
        }
        schema = {"properties": schema.get("properties", {})}
    yield from check(validator, given, value, schema) or ()


def _is_date_time(value: object) -> bool:
    return not isinstance(value, str) or bool(datetime.fromisoformat(value))


def _is_regex(value: object) -> bool:
    """Whether it is a regular expression. A long one is taken for one: `re` takes time for each."""
    return not isinstance(value, str) or len(value) > MAX_REGEX or re.compile(value) is not None


def _is_time(value: object) -> bool:
    return not isinstance(value, str) or time.fromisoformat(value) is not None


def _check(schema: dict[str, Any], what: str) -> None:
    from jsonschema import Draft202012Validator, SchemaError
    from jsonschema.validators import validator_for
    from referencing import Registry
    from referencing.jsonschema import DRAFT202012, specification_with

    dialect = schema.get("$schema", "")
    if not isinstance(dialect, str):
        raise UsageError(f"{what} is no JSON schema: its '$schema' is {shown(dialect)}")
    try:
        validator_for(schema, default=Draft202012Validator).check_schema(schema)
    except SchemaError as error:
        place = ".".join(map(str, error.absolute_path)) or "the whole"
        raise UsageError(f"{what} is no JSON schema: {place}: {error.message}") from error
    resource = specification_with(dialect, default=DRAFT202012).create_resource(schema)
    registry: Registry[Any] = Registry()
    patterns, keywords = set[str](), set[str]()
    for each, resolver in _parts(resource, registry.resolver_with_root(resource)):
        if each is not resource and "$schema" in each.contents:
            raise UsageError(f"{what} has a '$schema' inside: name it at the top alone")
        keywords |= each.contents.keys()
        patterns.update(map(str, filter(None, [each.contents.get("pattern")])))
        patterns.update(each.contents.get("patternProperties", ()))
        ref = each.contents.get("$ref")
        if isinstance(ref, str):
            _check_ref(ref, resolver, what)
    _check_bounded(keywords, patterns, what)


def _check_bounded(keywords: set[str], patterns: set[str], what: str) -> None:
    """Raise a `UsageError` for what cannot be checked in a bounded time.

    What is unevaluated is found by the library without a count of its steps, and by `re`.
    """
    uncounted = sorted(keywords & _UNCOUNTED)
    unevaluated = sorted(keywords & {"unevaluatedProperties", "unevaluatedItems"})
    if unevaluated and uncounted:
        raise UsageError(
            f"{what} has {unevaluated[0]!r} beside {uncounted[0]!r}: together they may take for "
            "ever to check; leave out one of them"
        )
    size = 0
    for pattern in sorted(patterns):
        size += size_of_pattern(pattern, CLASS_SIZE)
        if size > MAX_PATTERN_SIZE:
            raise UsageError(f"{what} has patterns that repeat too much, such as {shown(pattern)}")
        try:
            Pattern(pattern)
        except ValueError as error:
            raise UsageError(
                f"{what} has the pattern {shown(pattern)}, which cannot be looked for in a bounded "
                f"time: {error}"
            ) from error


def _check_ref(ref: str, resolver: Any, what: str) -> None:
    from referencing.exceptions import Unresolvable

    try:
        found = resolver.lookup(ref).contents
    except (Unresolvable, ValueError) as error:
        raise UsageError(
            f"{what} refers to {shown(ref)}, which it does not hold: put what it refers to "
            "under its '$defs'; nothing is fetched"
        ) from error
    if not isinstance(found, (dict, bool)):
        raise UsageError(f"{what} refers to {shown(ref)}, which is no schema but {shown(found)}")


def _parts(resource: Any, resolver: Any) -> Iterator[tuple[Any, Any]]:
    """The schemas in a schema, itself first, each with what its references are resolved by."""
    if isinstance(resource.contents, dict):
        yield resource, resolver
        for inner in resource.subresources():
            yield from _parts(inner, resolver.in_subresource(inner))
