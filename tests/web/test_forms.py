"""The form in which a person edits arguments: made of the schema, checked by the tool."""

from __future__ import annotations

import html.parser
from datetime import date
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.loops import soon
from tests.support.web_site import (
    ORDER,
    Done,
    Line,
    Place,
    Speed,
    asked,
    desk,
    only_request,
    rest,
    site_of,
)
from understudy import Runtime, Status, call
from understudy.web.forms.edit import AnswerForm, EditForm, changed
from understudy.web.render import template
from understudy.web.visit import Form


class Inputs(html.parser.HTMLParser):
    """The fields of the edit form, as a browser would send them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.values: dict[str, str] = {}
        self.attributes: dict[str, dict[str, str]] = {}
        self.errors: list[str] = []
        self._area: str | None = None
        self._select: str | None = None
        self._error = False
        start = text.index('<details id="edit"')
        self.feed(text[start : text.index("</details>", start)])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        name = given.get("name", "")
        if tag in ("input", "textarea", "select"):
            self.attributes[name] = {**given, "tag": tag}
            self.values[name] = given.get("value", "")
            self._area = name if tag == "textarea" else None
            self._select = name if tag == "select" else self._select
            if tag == "select":
                self.values[name] = "\0"
        elif tag == "option" and self._select is not None:
            if "selected" in given or self.values[self._select] == "\0":
                self.values[self._select] = given["value"]
        elif tag == "span" and given.get("class") == "error":
            self._error = True

    def handle_endtag(self, tag: str) -> None:
        self._area = None if tag == "textarea" else self._area
        self._select = None if tag == "select" else self._select
        self._error = False

    def handle_data(self, data: str) -> None:
        if self._area is not None:
            self.values[self._area] += data.removeprefix("\n")  # as a browser does
        elif self._error:
            self.errors.append(data)


async def edit_form(client: httpx.AsyncClient) -> tuple[str, Inputs]:
    """The page of the one request, and its form."""
    row = await only_request(client)
    page = f"/agents/{row['agent_id']}/requests/{row['id']}"
    return page, Inputs((await client.get(page)).text)


async def test_a_form_has_a_field_of_the_fitting_kind_for_each_argument() -> None:
    async with Runtime([desk(Done(), call("order", ORDER))]) as runtime:
        await asked(runtime)
        async with site_of(runtime) as client:
            _, form = await edit_form(client)
            kinds = {
                name: (found["tag"], found.get("type", ""))
                for name, found in form.attributes.items()
                if name.startswith("v:")
            }
            assert kinds == {
                "v:/lines/0/sku": ("input", "text"),
                "v:/lines/0/count": ("input", "number"),
                "v:/to/street": ("input", "text"),
                "v:/to/zip": ("input", "text"),
                "v:/speed": ("select", ""),
                "v:/due": ("input", "date"),
                "v:/count": ("input", "number"),
                "v:/price": ("input", "number"),
                "v:/gift": ("select", ""),
                "v:/size": ("select", ""),
                "v:/tags/0": ("input", "text"),
                "v:/note": ("input", "text"),
                "v:/extra": ("textarea", ""),
            }
            bounds = form.attributes["v:/count"]
            assert (bounds["min"], bounds["max"], bounds["step"]) == ("1", "10", "1")
            assert form.attributes["v:/price"]["step"] == "any"
            assert form.values["v:/due"] == "2030-05-01"
            assert form.values["v:/size"] == '"M"'
            assert form.values["v:/note"] == ""
            assert form.values["v:/to/zip"] == ""
            assert form.values["n:/lines"] == "1"


async def test_what_is_edited_is_what_the_tool_gets_in_its_types() -> None:
    done = Done()
    async with Runtime([desk(done, call("order", ORDER), "ok")]) as runtime:
        ref = await asked(runtime)
        async with site_of(runtime) as client:
            page, form = await edit_form(client)
            more = await client.post(page, data={**form.values, "do": "add:/lines"})
            assert more.status_code == 200
            form = Inputs(more.text)
            assert form.values["n:/lines"] == "2"
            typed = {
                **form.values,
                "v:/lines/0/sku": "ZZ-9",
                "v:/lines/1/sku": "QQ-1",
                "v:/lines/1/count": "5",
                "v:/speed": '"fast"',
                "v:/due": "2031-12-24",
                "v:/count": "7",
                "v:/price": "1e2",
                "v:/gift": "true",
                "v:/size": "3",
                "v:/note": "two\r\nlines",
                "v:/extra": '{"a": 1}',
                "is:/tree": "value",
                "v:/tree/name": "root",
                "n:/tree/inside": "1",
                "v:/tree/inside/0": '{"name": "leaf"}',
                "note": "checked",
            }
            answer = await client.post(page, data=typed)
            assert answer.status_code == 303, Inputs(answer.text).errors
            await rest(ref)
        ((_, got),) = done.calls
        assert got["lines"] == [Line(sku="ZZ-9", count=2), Line(sku="QQ-1", count=5)]
        assert got["to"] == Place(street="Long Road 1", zip=None)
        assert (got["speed"], got["due"]) == (Speed.FAST, date(2031, 12, 24))
        assert (got["count"], got["price"], got["gift"], got["size"]) == (7, 100.0, True, 3)
        assert (got["note"], got["extra"]) == ("two\nlines", {"a": 1})
        assert got["tree"].inside[0].name == "leaf"
        (record,) = await soon(ref.decisions())
        assert (record.decision.by, record.decision.note) == ("ann", "checked")


@pytest.mark.parametrize(
    ("field", "typed", "says"),
    [
        ("v:/count", "much", "valid integer"),
        ("v:/count", "11", "less than or equal to 10"),
        ("v:/price", "", "valid number"),
        ("v:/due", "tomorrow", "valid date"),
        ("v:/lines/0/sku", "x", "at least 2 characters"),
        ("v:/lines/0/count", "1.5", "valid integer"),
        ("v:/extra", "{", "no JSON"),
        ("v:/extra", '{"a": "b"}', "valid integer"),
        ("v:/speed", '"warp"', "'slow' or 'fast'"),
        ("v:/gift", "maybe", "valid boolean"),
        ("v:/speed", "", "Choose one of them."),
    ],
)
async def test_a_mistake_is_told_at_its_field_and_what_was_typed_stays(
    field: str, typed: str, says: str
) -> None:
    done = Done()
    async with Runtime([desk(done, call("order", ORDER), "ok")]) as runtime:
        ref = await asked(runtime)
        async with site_of(runtime) as client:
            page, form = await edit_form(client)
            values = {**form.values, "v:/to/street": "Kept Road", field: typed}
            answer = await client.post(page, data=values)
            assert answer.status_code == 422
            again = Inputs(answer.text)
            assert len(again.errors) == 1, again.errors
            assert says in again.errors[0]
            if field not in ("v:/speed", "v:/gift"):
                assert again.attributes[field]["aria-invalid"] == "true"
            if field != "v:/gift":
                assert again.values[field] == typed
            assert again.values["v:/to/street"] == "Kept Road"
            assert '<details id="edit" open>' in answer.text
        assert ref.status() is Status.INTERRUPTED
    assert done.calls == []


async def test_an_item_of_a_list_is_dropped_from_the_middle() -> None:
    form = Form([("n:/a", "3"), *((f"v:/a/{n}/x", str(n)) for n in range(3)), ("v:/ab/1", "k")])
    after = changed(form, "drop:/a/1")
    assert after.pairs == [("n:/a", "2"), ("v:/a/0/x", "0"), ("v:/a/1/x", "2"), ("v:/ab/1", "k")]
    assert changed(form, "nonsense").pairs == form.pairs


async def test_a_tool_that_is_not_known_here_has_one_field_for_json() -> None:
    form = EditForm({}, {"order": 17})
    (field,) = form.fields
    assert (field.kind, form.values()) == ("json", {"order": 17})
    broken = EditForm({}, {"order": 17}, Form([("v:", "[1]")]))
    assert broken.values() == {}
    assert broken.has_errors


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/no"},
        {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        {"type": ["string", "integer"]},
        {"type": "object", "patternProperties": {".*": {}}, "properties": {"a": {}}},
        {"type": "array", "prefixItems": [{"type": "string"}]},
        {},
        True,
        None,
        {"allOf": [{"type": "string"}, {"minLength": 1}]},
        {"type": "object", "additionalProperties": {"type": "string"}},
    ],
    ids=str,
)
def test_what_a_schema_says_beyond_the_fields_is_a_field_for_json(schema: Any) -> None:
    whole = {"type": "object", "properties": {"x": schema}}
    form = EditForm(whole, {"x": {"kept": [1, "two", None]}})
    (field,) = form.fields
    assert field.kind == "json"
    assert form.values() == {"x": {"kept": [1, "two", None]}}


def test_a_schema_that_is_nested_deeply_or_holds_itself_ends_in_json() -> None:
    deep: Any = {"type": "string"}
    value: Any = "x"
    for _ in range(300):
        deep = {"type": "object", "properties": {"a": deep}}
        value = {"a": value}
    form = EditForm(deep, value)
    assert form.values() == value
    ring = {"properties": {"a": {"$ref": "#/$defs/R"}}, "type": "object",
            "$defs": {"R": {"$ref": "#/$defs/R"}}}  # fmt: skip
    assert EditForm(ring, {"a": 1}).values() == {"a": 1}


INNER = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
KINDS: dict[str, tuple[dict[str, Any], Any, dict[str, str], Any]] = {
    "text": ({"type": "string"}, "was", {"v:/x": "typed"}, "typed"),
    "long": ({"type": "string"}, "was\r\nso", {"v:/x": "ty\nped"}, "ty\nped"),
    "date": ({"type": "string", "format": "date"}, "2030-05-01", {"v:/x": "2031-01-02"},
             "2031-01-02"),
    "email": ({"type": "string", "format": "email"}, "a@b.example", {"v:/x": "c@d.example"},
              "c@d.example"),
    "integer": ({"type": "integer"}, 3, {"v:/x": "4"}, 4),
    "number": ({"type": "number"}, 1.0, {"v:/x": "2.5"}, 2.5),
    "boolean": ({"type": "boolean"}, False, {"v:/x": "true"}, True),
    "choice": ({"enum": ["express", "slow"]}, "slow", {"v:/x": '"express"'}, "express"),
    "json": ({}, {"was": [1]}, {"v:/x": "[2]"}, [2]),
    "list": ({"type": "array", "items": {"type": "string"}}, ["was"],
             {"do": "add:/x", "v:/x/0": "typed"}, ["typed"]),
    "object": (INNER, {"name": "was"}, {"do": "give:/x", "v:/x/name": "typed"}, {"name": "typed"}),
}  # fmt: skip
"""Of each kind: its schema, a value, what a person does to its fields, and what comes of it."""


def sent(form: EditForm) -> dict[str, str]:
    """What a browser sends of the form, as it is drawn."""
    page = template("form.html").module
    drawn = "".join(str(page.input(field)) for field in form.fields)  # type: ignore[attr-defined]
    return Inputs(f'<details id="edit">{drawn}</details>').values


@pytest.mark.parametrize("was", ["value", "null", "left out"])
@pytest.mark.parametrize("may_be_null", [False, True], ids=["", "nullable"])
@pytest.mark.parametrize("is_required", [False, True], ids=["optional", "required"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_stands_in_a_field_is_what_it_gives_and_an_untouched_one_gives_what_it_was(
    kind: str, is_required: bool, may_be_null: bool, was: str
) -> None:
    """The fields had a selector beside them that said null, whatever somebody chose in them."""
    if (was == "null" and not may_be_null) or (was == "left out" and is_required):
        return
    schema, value, typed, wanted = KINDS[kind]
    inner = {"anyOf": [schema, {"type": "null"}]} if may_be_null and schema else schema
    if kind == "json" and may_be_null:
        inner = {"anyOf": [{"type": "integer"}, {"type": "array"}, {"type": "null"}]}
    whole = {
        "type": "object",
        "properties": {"x": inner},
        "required": ["x"] if is_required else [],
    }
    before = {} if was == "left out" else {"x": None if was == "null" else value}

    def values(fields: dict[str, str]) -> dict[str, Any]:
        form = EditForm(whole, before, Form(list(fields.items())))
        found = form.values()
        assert not form.has_errors
        return found

    first = sent(EditForm(whole, before))
    assert values(first) == before, "nobody touched it"
    fields = {**first, **typed}
    if "do" in fields and not (kind == "list" and was == "value"):
        ask = fields.pop("do")
        more = changed(Form(list(first.items())), ask)
        fields = {**sent(EditForm(whole, before, more)), **fields, **{
            name: text for name, text in more.pairs if not name.startswith("v:")
        }}  # fmt: skip
    fields.pop("do", None)
    assert values(fields) == {"x": wanted}
    # Back to nothing, by the field itself: null or left out, as the page says.
    nothing = [key for key in ("null", "absent") if _offers(whole, fields, before, key)]
    for key in nothing:
        assert values(_without(whole, fields, before, key)) == (
            {} if key == "absent" else {"x": None}
        )
    assert bool(nothing) is (may_be_null or not is_required)


def _offers(whole: Any, fields: dict[str, str], before: Any, key: str) -> bool:
    (field,) = EditForm(whole, before, Form(list(fields.items()))).fields
    if field.kind in ("choice", "boolean"):
        return key in [value for value, _ in field.options]
    return field.empty == key


def _without(whole: Any, fields: dict[str, str], before: Any, key: str) -> dict[str, str]:
    """The fields when a person has taken the value away."""
    form = Form(list(fields.items()))
    (field,) = EditForm(whole, before, form).fields
    if field.is_group:
        return sent(EditForm(whole, before, changed(form, "none:/x")))
    return {**fields, "v:/x": key if field.kind in ("choice", "boolean") else ""}


@pytest.mark.parametrize("schema", [{"type": "boolean"}, {"enum": ["a", "b"]}, {"const": "yes"}])
def test_a_required_choice_is_not_made_by_the_page(schema: dict[str, Any]) -> None:
    question = {"type": "object", "properties": {"q": schema}, "required": ["q"]}
    form = AnswerForm(question)
    fields = sent(form)
    assert fields["v:/answer/q"] == ""
    answer = AnswerForm(question, Form(list(fields.items())))
    answer.answer()
    assert [error for field in answer.all for error in field.errors] == ["Choose one of them."]


def test_what_has_no_field_is_not_lost_in_the_form() -> None:
    """Names that the schema does not tell of went away when somebody edited another one."""
    schema = {"type": "object", "properties": {"a": INNER}}
    arguments = {"a": {"name": "n", "more": 1}}
    assert EditForm(schema, arguments).values() == arguments
    assert EditForm(schema, {**arguments, "beside": 2}).values() == {**arguments, "beside": 2}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "string", "format": "date"}, "tomorrow"),
        ({"type": "string", "format": "email"}, " a@b.example"),
        ({"type": "string"}, "a\0b"),
        ({"type": "integer"}, "many"),
        ({"type": "boolean"}, "perhaps"),
    ],
)
def test_a_browsers_own_field_is_not_used_for_a_value_that_it_would_empty(
    schema: dict[str, Any], value: str
) -> None:
    (field,) = EditForm({"type": "object", "properties": {"x": schema}}, {"x": value}).fields
    assert field.kind in ("text", "json")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
SCHEMAS = st.recursive(
    st.sampled_from(
        [{"type": "string"}, {"type": "integer"}, {"type": "number"}, {"type": "boolean"}, {},
         {"enum": ["a", 1, None]}, {"anyOf": [{"type": "string"}, {"type": "null"}]}]
    ),
    lambda inner: st.builds(lambda i: {"type": "array", "items": i}, inner)
    | st.builds(
        lambda p: {"type": "object", "properties": p, "required": list(p)[:1]},
        st.dictionaries(st.text(max_size=4), inner, max_size=3),
    ),
    max_leaves=6,
)  # fmt: skip


@pytest.mark.slow
@given(properties=st.dictionaries(st.text(max_size=5), SCHEMAS, max_size=4), value=JSON)
def test_no_schema_and_no_value_breaks_the_form(properties: dict[str, Any], value: Any) -> None:
    schema = {"type": "object", "properties": properties}
    form = EditForm(schema, dict.fromkeys(properties, value))
    names = [field.name for field in form.all]
    assert len(names) == len(set(names))
    form.values()
