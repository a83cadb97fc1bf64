"""The forms in which a person edits the arguments of a call, or answers a question.

They are made from the JSON schema of the tool, or of the question.

The fields of a form are named by the places of their values: `v:/lines/0/price`. `n:/lines` is the
number of the items of a list. An object or a list that may be null or left out has `is:/...`, which
buttons change: without a value it shows no fields. Any other field says by itself that it has no
value: it is empty, or its option is chosen. So only the field itself decides about its value. A
field that nobody touches gives back the value from which it was made. Parts of a schema without
such a form become a field for JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from understudy._base.json_schema import faults_of
from understudy.web.visit import Form

Kind = Literal[
    "text", "long", "integer", "number", "boolean", "choice", "date", "datetime", "time", "email",
    "url", "list", "object", "json",
]  # fmt: skip


@dataclass(slots=True)
class Field:
    """One field, or a group of them."""

    kind: Kind
    path: str
    """The place of the value, as a JSON pointer."""
    label: str
    help: str = ""
    is_required: bool = True
    """Whether the value may not be left out."""
    is_nullable: bool = False
    empty: Literal["value", "null", "absent"] = "value"
    """The meaning of an empty field: null, left out, or an empty text."""
    is_given: bool = True
    """Whether an object or a list has a value now."""
    value: Any = None
    """The value from which it was made, or `MISSING`."""
    initial: str = ""
    """The text of the original value."""
    text: str = ""
    """The text in the field, or what was typed."""
    attributes: dict[str, str] = field(default_factory=dict)
    options: list[tuple[str, str]] = field(default_factory=list)
    """The options of a choice: each value as JSON, and the text that is shown."""
    fields: list[Field] = field(default_factory=list)
    """The fields of an object or a list."""
    errors: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The name of the input."""
        return f"v:{self.path}"

    @property
    def id(self) -> str:
        """The id of the element, which CSS and links can name."""
        return "f" + self.path.encode().hex()

    @property
    def is_group(self) -> bool:
        """Whether it is an object or a list."""
        return self.kind in ("object", "list")

    @property
    def is_touched(self) -> bool:
        """Whether its text differs from the original text, in the form in which a browser sends
        it.
        """
        return self.text != self.initial.replace("\r\n", "\n").replace("\r", "\n")

    @property
    def all(self) -> Iterator[Field]:
        """The field itself, and all fields in it."""
        yield self
        for inner in self.fields:
            yield from inner.all


MISSING: Any = object()
MAX_DEPTH = 6
"""Objects and lists deeper than this are one field for JSON."""
MAX_ITEMS = 200
LONG = 60
"""The number of characters above which a text gets several lines."""
ABSENT = "absent"
"""The option of a choice that leaves the value out. Unlike each value of a choice, it is no
JSON."""
ANSWER = "answer"
"""The name of the one value of an `AnswerForm`."""
_FORMATS: dict[str, Kind] = {
    "date": "date",
    "email": "email",
    "uri": "url",
}
"""The formats for which a browser's own field writes what the schema wants. A time zone has
none."""
_KEPT = re.compile(r"[!-~]*")
"""A text that a browser's own field for mails or addresses does not change."""
_DATE = re.compile(r"(\d{4}-\d{2}-\d{2})?")
"""A text that a browser's own field for dates does not empty."""
_BOUNDS = {
    "minimum": "min", "maximum": "max", "exclusiveMinimum": "min", "exclusiveMaximum": "max",
    "minLength": "minlength", "maxLength": "maxlength", "multipleOf": "step",
}  # fmt: skip


class EditForm:
    """The fields for arguments.

    Args:
        schema: the schema of the tool's arguments.
        arguments: the first values of the fields.
        typed: the texts that a person typed, which replace the arguments.

    """

    def __init__(
        self, schema: Mapping[str, Any], arguments: Mapping[str, Any], typed: Form | None = None
    ) -> None:
        self._schema = schema
        self._typed = typed
        self.errors: list[str] = []
        """The errors of the form as a whole."""
        self.taken: dict[str, Any] = {}
        """The arguments that were read from the fields so far."""
        if _has_fields(schema, arguments):
            self.fields: list[Field] = self._properties(schema, "", dict(arguments), (), 0)
        else:
            self.fields = [self._json("", "arguments", dict(arguments))]

    @property
    def all(self) -> Iterator[Field]:
        """All fields."""
        for inner in self.fields:
            yield from inner.all

    @property
    def is_touched(self) -> bool:
        """Whether a person filled in something."""
        return any(not each.is_group and each.is_touched for each in self.all)

    # ------------------------------------------------------------------- the fields

    def _properties(
        self, schema: Mapping[str, Any], path: str, value: Any, refs: tuple[str, ...], depth: int
    ) -> list[Field]:
        required = schema.get("required", [])
        values = value if isinstance(value, dict) else {}
        return [
            self._field(
                inner,
                f"{path}/{_escaped(name)}",
                name,
                values.get(name, MISSING),
                refs,
                depth,
                is_required=name in required,
            )
            for name, inner in schema["properties"].items()
        ]

    def _field(
        self,
        schema: Any,
        path: str,
        label: str,
        value: Any,
        refs: tuple[str, ...],
        depth: int,
        *,
        is_required: bool,
    ) -> Field:
        schema, refs, is_nullable = self._resolved(schema, refs)
        if value is MISSING and schema is not None and schema.get("default") is not None:
            value = schema["default"]
        made = self._value_field(schema, path, label, value, refs, depth)
        made.value = value
        made.is_required, made.is_nullable = is_required, is_nullable
        described = schema.get("description", "") if schema is not None else ""
        made.help = described if isinstance(described, str) else ""
        if value == "":
            made.empty = "value"
        elif value is MISSING and not is_required:
            made.empty = "absent"
        else:
            made.empty = "null" if is_nullable else "value" if is_required else "absent"
        if made.is_group:
            made.is_given = self._is_given(made)
            made.fields = made.fields if made.is_given else []
        elif made.kind in ("choice", "boolean"):
            self._add_options(made)
        made.text = self._said(path, made.initial)
        return made

    def _is_given(self, made: Field) -> bool:
        """Whether an object or a list has a value. Typed text in its fields counts as a value."""
        typed, path = self._typed, made.path
        if typed is None or not typed.has(f"is:{path}"):
            is_value = made.value is not None and made.value is not MISSING
            if is_value or made.empty == "value" or typed is None:
                return is_value or made.empty == "value"
        elif typed.get(f"is:{path}") == "value":
            return True
        has_items = made.kind == "list" and bool(made.fields)
        return has_items or bool(typed.starting(f"v:{path}/"))

    def _add_options(self, made: Field) -> None:
        """Add the options of a choice that are no value, so that no value is preselected."""
        if made.is_nullable and "null" not in [key for key, _ in made.options]:
            made.options.insert(0, ("null", "— null —"))
        if not made.is_required:
            made.options.insert(0, (ABSENT, "— left out —"))
        if made.value is MISSING:
            made.initial = "" if made.is_required else ABSENT
        elif made.value is None:
            made.initial = "null"
        if made.initial == "":
            made.options.insert(0, ("", "— choose —"))
        said = self._said(made.path, made.initial)
        if said not in [key for key, _ in made.options]:
            made.options.insert(0, (said, f"{said} (not allowed)"))

    def _resolved(
        self, schema: Any, refs: tuple[str, ...]
    ) -> tuple[dict[str, Any] | None, tuple[str, ...], bool]:
        """The schema behind references, and whether null is allowed; None if it has no form."""
        is_nullable = False
        while isinstance(schema, dict):
            if "$ref" in schema:
                ref = schema["$ref"]
                if not isinstance(ref, str) or ref in refs:
                    return None, refs, is_nullable  # the schema is recursive
                found = self._defined(ref)
                if found is None:
                    return None, refs, is_nullable
                refs = (*refs, ref)
                schema = {**found, **{k: v for k, v in schema.items() if k != "$ref"}}
            elif isinstance(options := schema.get("anyOf") or schema.get("oneOf"), list):
                others = [
                    o for o in options if not (isinstance(o, dict) and o.get("type") == "null")
                ]
                is_nullable = is_nullable or len(others) < len(options)
                if len(others) != 1 or not isinstance(others[0], dict):
                    return None, refs, is_nullable
                outer = {k: v for k, v in schema.items() if k not in ("anyOf", "oneOf")}
                schema = {**others[0], **outer}
            elif isinstance(parts := schema.get("allOf"), list) and len(parts) == 1:
                outer = {k: v for k, v in schema.items() if k != "allOf"}
                schema = {**parts[0], **outer}
            elif isinstance(kinds := schema.get("type"), list):
                others = [kind for kind in kinds if kind != "null"]
                is_nullable = is_nullable or len(others) < len(kinds)
                if len(others) != 1:
                    return None, refs, is_nullable
                schema = {**schema, "type": others[0]}
            else:
                return schema, refs, is_nullable
        return None, refs, is_nullable

    def _defined(self, ref: str) -> dict[str, Any] | None:
        place: Any = self._schema
        if not ref.startswith("#/"):
            return None
        for part in ref[2:].split("/"):
            place = place.get(_unescaped(part)) if isinstance(place, dict) else None
        return place if isinstance(place, dict) else None

    def _value_field(
        self,
        schema: dict[str, Any] | None,
        path: str,
        label: str,
        value: Any,
        refs: tuple[str, ...],
        depth: int,
    ) -> Field:
        if schema is None:
            return self._json(path, label, value)
        if "const" in schema or "enum" in schema:
            return self._choice(schema, path, label, value)
        match schema.get("type"):
            case "string":
                return self._text(schema, path, label, value)
            case "integer" | "number" as kind if _is_number(value) or _is_none(value):
                shown = "" if _is_none(value) else _number_text(value)
                made = Field(kind, path, label, initial=shown)
                made.attributes = _bounds(schema)
                made.attributes.setdefault("step", "1" if kind == "integer" else "any")
                return made
            case "boolean" if isinstance(value, bool) or _is_none(value):
                shown = json.dumps(value) if isinstance(value, bool) else ""
                options = [("true", "yes"), ("false", "no")]
                return Field("boolean", path, label, initial=shown, options=options)
            case "array" if depth < MAX_DEPTH and "prefixItems" not in schema:
                return self._list(schema, path, label, value, refs, depth)
            case "object" if depth < MAX_DEPTH and _has_fields(schema, value):
                made = Field("object", path, label)
                made.fields = self._properties(schema, path, value, refs, depth + 1)
                return made
            case _:
                return self._json(path, label, value)

    def _text(self, schema: dict[str, Any], path: str, label: str, value: Any) -> Field:
        initial = "" if _is_none(value) else value
        if not isinstance(initial, str) or "\0" in initial:
            return self._json(path, label, value)
        text = self._said(path, initial)
        kind = _FORMATS.get(schema.get("format", ""), "text")
        # The browser's own field would change or empty any other text.
        if not (_DATE if kind == "date" else _KEPT).fullmatch(text):
            kind = "text"
        # The browser drops line breaks in a field with one line.
        if "\n" in text or "\r" in text or (kind == "text" and len(text) > LONG):
            kind = "long"
        made = Field(kind, path, label, initial=initial, attributes=_bounds(schema))
        if isinstance(schema.get("format"), str):
            made.attributes.setdefault("data-format", schema["format"])
        return made

    def _choice(self, schema: dict[str, Any], path: str, label: str, value: Any) -> Field:
        values = [schema["const"]] if "const" in schema else schema["enum"]
        options = [(_json_text(v), v if isinstance(v, str) else _json_text(v)) for v in values]
        initial = "" if value is MISSING else _json_text(value)
        return Field("choice", path, label, initial=initial, options=options)

    def _list(
        self,
        schema: dict[str, Any],
        path: str,
        label: str,
        value: Any,
        refs: tuple[str, ...],
        depth: int,
    ) -> Field:
        items = value if isinstance(value, list) else []
        count = len(items)
        if self._typed is not None and self._typed.has(f"n:{path}"):
            said = self._typed.get(f"n:{path}")
            count = int(said) if said.isdecimal() and len(said) < 5 else 0
        if count > MAX_ITEMS or (value is not MISSING and value is not None and items is not value):
            return self._json(path, label, value)
        inner = schema.get("items", {})
        made = Field("list", path, label, attributes=_bounds(schema))
        made.fields = [
            self._field(
                inner,
                f"{path}/{n}",
                f"{label} {n + 1}",
                items[n] if n < len(items) else MISSING,
                refs,
                depth + 1,
                is_required=True,
            )
            for n in range(count)
        ]
        return made

    def _json(self, path: str, label: str, value: Any) -> Field:
        text = "" if value is MISSING else json.dumps(value, indent=2, ensure_ascii=False)
        return Field("json", path, label, value=value, initial=text, text=self._said(path, text))

    def _said(self, path: str, default: str) -> str:
        """The text that was typed into a field."""
        return default if self._typed is None else self._typed.get(f"v:{path}", default)

    # ------------------------------------------------------------------- the values

    def values(self) -> dict[str, Any]:
        """The arguments in the fields. Invalid JSON is noted at its field."""
        if len(self.fields) == 1 and self.fields[0].path == "":
            found = self._value(self.fields[0])
            if isinstance(found, dict):
                return found
            if not self.fields[0].errors:
                self.fields[0].errors.append("This must be an object: {…}")
            return {}
        return self._object(self.fields)

    def _object(self, fields: Sequence[Field]) -> dict[str, Any]:
        found = {}
        for inner in fields:
            value = self._value(inner)
            if value is not MISSING:
                found[_unescaped(inner.path.rpartition("/")[2])] = value
        return found

    def _value(self, of: Field) -> Any:
        nothing = {"null": None, "absent": MISSING}
        if of.is_group:
            if not of.is_given:
                return nothing[of.empty]
            if of.kind == "object":
                return self._object(of.fields)
            return [None if (v := self._value(f)) is MISSING else v for f in of.fields]
        if not of.is_touched and of.value is not MISSING:
            return of.value
        if of.kind in ("choice", "boolean"):
            return self._chosen(of)
        if of.text == "" and of.empty in nothing:
            return nothing[of.empty]
        match of.kind:
            case "integer" | "number":
                return _number(of.text, is_whole=of.kind == "integer")
            case "json":
                return self._parsed(of)
            case _:
                return of.text

    def _chosen(self, of: Field) -> Any:
        if of.text == "":
            of.errors.append("Choose one of them.")
            return None
        if of.text == ABSENT and not of.is_required:
            return MISSING
        if of.kind == "boolean":
            return {"true": True, "false": False, "null": None}.get(of.text, of.text)
        return self._parsed(of)

    def _parsed(self, of: Field) -> Any:
        try:
            return json.loads(of.text, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            of.errors.append(f"This is no JSON: {error}")
            return None

    def place(self, places: Sequence[tuple[tuple[int | str, ...], str]]) -> None:
        """Put each error at the deepest field on its path."""
        by_path = {inner.path: inner for inner in self.all}
        for where, what in places:
            parts = [_escaped(str(part)) for part in where]
            for length in range(len(parts), 0, -1):
                found = by_path.get("/" + "/".join(parts[:length]))
                if found is not None:
                    found.errors.append(what)
                    break
            else:
                self.errors.append(f"{'.'.join(map(str, where))}: {what}" if where else what)

    @property
    def has_errors(self) -> bool:
        """Whether anything is wrong."""
        return bool(self.errors) or any(inner.errors for inner in self.all)


class AnswerForm(EditForm):
    """The field, or the fields, for the answer to a question that has a schema.

    Args:
        schema: the schema of the answer.
        typed: the texts that a person typed.

    """

    def __init__(self, schema: Mapping[str, Any], typed: Form | None = None) -> None:
        defined = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
        whole = {"properties": {ANSWER: schema}, "required": [ANSWER], **defined}
        super().__init__(whole, {}, typed)
        self._answer = schema

    def answer(self) -> Any:
        """The answer in the fields. A value that does not fit is noted at its field."""
        value = self.values().get(ANSWER)
        if not self.has_errors:
            faults = faults_of(self._answer, value)
            self.place([((ANSWER, *where), what) for where, what in faults])
        return value


def changed(form: Form, ask: str) -> Form:
    """The fields after a button of the form.

    Args:
        form: the fields that were sent.
        ask: `add:/lines`, `drop:/lines/2`, `give:/to` to give an object a value, or `none:/to` to
            take the value away.

    """
    what, _, path = ask.partition(":")
    pairs = [(name, value) for name, value in form.pairs if name != "do"]
    if what in ("add", "give"):
        more = 1 if what == "add" else 0
        counted = [(n, _plus(v, more) if n == f"n:{path}" else v) for n, v in pairs]
        return Form([(n, "value" if n == f"is:{path}" else v) for n, v in counted])
    if what == "none":
        below = tuple(f"{mark}:{path}/" for mark in ("v", "is", "n"))
        left = [(n, v) for n, v in pairs if not n.startswith(below)]
        zero = {f"is:{path}": "none", f"n:{path}": "0"}
        return Form([(n, zero.get(n, v)) for n, v in left])
    parent, _, index = path.rpartition("/")
    if what != "drop" or not index.isdecimal():
        return Form(pairs)
    kept = []
    for name, value in pairs:
        mark, _, place = name.partition(":")
        if mark in ("v", "is", "n") and place.startswith(f"{parent}/"):
            number, slash, rest = place.removeprefix(f"{parent}/").partition("/")
            if number.isdecimal():
                if int(number) == int(index):
                    continue
                if int(number) > int(index):
                    place = f"{parent}/{int(number) - 1}{slash}{rest}"
                    name = f"{mark}:{place}"
        kept.append((name, _plus(value, -1) if name == f"n:{parent}" else value))
    return Form(kept)


def _plus(text: str, more: int) -> str:
    return str(max(int(text) + more, 0)) if text.isdecimal() and len(text) < 5 else "0"


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _unescaped(name: str) -> str:
    return name.replace("~1", "/").replace("~0", "~")


def _has_fields(schema: Mapping[str, Any], value: Any) -> bool:
    """Whether each part of the object has a field. A part without a field would be lost."""
    properties = schema.get("properties")
    return (
        isinstance(properties, dict)
        and not schema.get("additionalProperties")
        and "patternProperties" not in schema
        and (_is_none(value) or (isinstance(value, Mapping) and value.keys() <= properties.keys()))
    )


def _is_none(value: Any) -> bool:
    return value is MISSING or value is None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _bounds(schema: Mapping[str, Any]) -> dict[str, str]:
    found = {}
    for word, attribute in _BOUNDS.items():
        value = schema.get(word)
        if _is_number(value):
            found[attribute] = _number_text(value)
    return found


def _number_text(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _number(text: str, *, is_whole: bool) -> Any:
    """The number; or the text if it is no number, so that the tool's validator reports it."""
    stripped = text.strip()
    try:
        if is_whole or stripped.lstrip("+-").isdecimal():
            return int(stripped)
        number = float(stripped)
    except ValueError:
        return text
    return number if abs(number) != float("inf") and number == number else text


def _json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
