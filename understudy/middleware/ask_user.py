"""`AskUser`: the model asks the user, by questions of a kind that a form can show.

It only adds the tool `ask_user(questions)`, which raises an `Interrupt` with a schema for the
answers.
It owns no requests: its requests are the tool's own questions, and are answered like any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    StringConstraints,
    model_validator,
)

from understudy._base.json_schema import fault_text, faults_of
from understudy._base.json_values import shown
from understudy._base.request_timing import EscalateAfter, OnExpiry, Seconds, request_timing
from understudy._base.titles import checked_title
from understudy._base.type_variables import DepsT_contra
from understudy.errors import UsageError
from understudy.interrupts import Interrupt
from understudy.middleware.base import Middleware, Prepared
from understudy.run.definition import AgentDefinition
from understudy.tools import Retry, Tool, ToolContext

MAX_OPTIONS = 50
_TOOL = "ask_user"
_CHOICES = ("one_of", "several_of")

Line = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=500)]
Lines = Annotated[str, StringConstraints(strip_whitespace=True, max_length=2000)]


class Option(BaseModel):
    """One of the answers to choose from."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    label: Line = Field(description="what the user reads")
    value: str | None = Field(None, description="what you get with it; the label by default")


class Question(BaseModel):
    """One question. What it needs besides its text depends on its kind."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    question: Line
    kind: Literal["text", "one_of", "several_of", "yes_or_no", "number"] = "text"
    options: list[Line | Option] = Field(
        default=[], max_length=MAX_OPTIONS, description="for one_of and several_of"
    )
    other: bool = Field(
        default=False, description="for one_of and several_of: the user may write an answer instead"
    )
    details: Lines = Field("", description="shown below the question")
    default: str | bool | FiniteFloat | list[str] | None = Field(
        None, description="what the user sees as the answer first: labels, for options"
    )
    required: bool = Field(default=True, description="false: the user may leave it out")
    minimum: FiniteFloat | None = Field(None, description="for number")
    maximum: FiniteFloat | None = Field(None, description="for number")
    whole: bool = Field(default=False, description="for number: without fractions")

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Question:
        chooses, counts = self.kind in _CHOICES, self.kind == "number"
        if chooses and not self.options:
            raise ValueError(f"a question of the kind {self.kind} needs `options`")
        if not chooses and (self.options or self.other):
            raise ValueError(f"`options` and `other` are for {' and '.join(_CHOICES)}")
        if not counts and (self.whole or (self.minimum, self.maximum) != (None, None)):
            raise ValueError("`minimum`, `maximum` and `whole` are for the kind number")
        if self.minimum is not None and self.maximum is not None and self.minimum > self.maximum:
            raise ValueError("`minimum` is above `maximum`")
        twice = _first_twice(list(self.values))
        if twice is not None:
            raise ValueError(f"two `options` have the label {twice!r}")
        return self

    @property
    def values(self) -> list[str]:
        """The labels of the question's options."""
        return [each if isinstance(each, str) else each.label for each in self.options]

    def value_of(self, label: str) -> str:
        """What the model gets for a label."""
        for each in self.options:
            if isinstance(each, Option) and each.label == label and each.value is not None:
                return each.value
        return label


def _each_once(questions: list[Question]) -> list[Question]:
    twice = _first_twice([each.question for each in questions])
    if twice is not None:
        raise ValueError(f"two questions are {shown(twice)}: ask each once")
    return questions


def _first_twice(texts: Sequence[str]) -> str | None:
    return next((text for n, text in enumerate(texts) if text in texts[:n]), None)


class AskUser(Middleware[DepsT_contra]):
    """A middleware that gives the model a tool to ask the user several typed questions at once.

    The request has a schema, of which the inbox makes a form. The value of the answer is an object:
    the text of each question is a key, with its answer. If a person rejects the request, no
    question is answered, and the model gets the person's message.

    Args:
        max_questions: the maximum number of questions that the model may ask at once.
        title: the title in lists of requests. `{questions}` stands for the texts of the
            questions.
        remind_after: seconds or timedeltas, one or several, after which the person is reminded.
        escalate_after: the other people to notify, by the seconds after which they are notified.
        expires_after: seconds, or a timedelta, after which unanswered questions expire; None =
            never.
        on_expiry: the effect of expired questions: `"reject"`, or `"stop"`, which stops the
            whole run.

    Raises:
        UsageError: if a number is not possible, or the title has another name in it.

    """

    def __init__(
        self,
        *,
        max_questions: int = 10,
        title: str = "{questions}",
        remind_after: Seconds | Sequence[Seconds] = (),
        escalate_after: EscalateAfter | None = None,
        expires_after: Seconds | None = None,
        on_expiry: OnExpiry = "reject",
    ) -> None:
        is_number = isinstance(max_questions, int) and not isinstance(max_questions, bool)
        if not is_number or not 1 <= max_questions <= MAX_OPTIONS:
            raise UsageError(
                f"AskUser: `max_questions` must be an integer from 1 to {MAX_OPTIONS}, got "
                f"{shown(max_questions)}"
            )
        self._max_questions = max_questions
        self._title = checked_title(
            title, what="AskUser(title=...)", names=["questions"], of="AskUser"
        )
        self._timing: dict[str, Any] = {
            "remind_after": remind_after,
            "escalate_after": escalate_after,
            "expires_after": expires_after,
            "on_expiry": on_expiry,
        }
        request_timing("AskUser", **self._timing)

    def prepare(self, definition: AgentDefinition) -> Prepared:
        return Prepared(tools=[self._tool()])

    def _tool(self) -> Tool:
        timing, title = self._timing, self._title

        async def ask_user(ctx: ToolContext, questions: Any) -> list[dict[str, Any]]:
            if not ctx.resumed:
                asked = [each.question for each in questions]
                raise Interrupt(
                    {"questions": asked}, title=title, schema=_schema_of(questions), **timing
                )
            return [_answered(each, ctx.resume_value) for each in questions]

        ask_user.__annotations__ = {
            "ctx": ToolContext,
            "questions": Annotated[
                list[Question],
                Field(min_length=1, max_length=self._max_questions),
                AfterValidator(_each_once),
            ],
            "return": list[dict[str, Any]],
        }
        ask_user.__doc__ = (
            "Ask the user, and wait for the answers. Ask all that you need to know at once. For "
            "each question you get the answer, and for an option its value as well."
        )
        # The tool has no effect, and runs again when the answers are there.
        return Tool(ask_user, name=_TOOL, read_only=True)


def _schema_of(questions: Sequence[Question]) -> dict[str, Any]:
    """The schema of the answers.

    Raises:
        Retry: if a default does not fit its question.

    """
    properties = {}
    for each in questions:
        schema = _schema(each)
        if each.default is not None:
            default = _default(each)
            faults = faults_of(schema, default)
            if faults:
                raise Retry(
                    f"the `default` of {shown(each.question)} is no answer to it: "
                    f"{fault_text(faults)}"
                )
            schema["default"] = default
        if each.details:
            schema["description"] = each.details
        properties[each.question] = schema
    return {
        "type": "object",
        "properties": properties,
        "required": [each.question for each in questions if each.required],
        "additionalProperties": False,
    }


def _schema(question: Question) -> dict[str, Any]:
    match question.kind:
        case "text":
            return {"type": "string", "minLength": 1} if question.required else {"type": "string"}
        case "yes_or_no":
            return {"type": "boolean"}
        case "number":
            bounds = {"minimum": question.minimum, "maximum": question.maximum}
            kind = "integer" if question.whole else "number"
            return {"type": kind, **{key: b for key, b in bounds.items() if b is not None}}
    one: dict[str, Any] = {"type": "string", "enum": question.values}
    many = {"type": "array", "items": one, "uniqueItems": True}
    if question.kind == "several_of" and question.required:
        many["minItems"] = 1
    chosen = one if question.kind == "one_of" else many
    if not question.other:
        return chosen
    return {
        "type": "object",
        "properties": {"choice": chosen, "other": {"type": "string", "minLength": 1}},
        "additionalProperties": False,
        "minProperties": 1,
        **({"maxProperties": 1} if question.kind == "one_of" else {}),
    }


def _default(question: Question) -> Any:
    default = question.default
    return {"choice": default} if question.other else default


def _answered(question: Question, answers: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to one question, as the model gets it."""
    found: dict[str, Any] = {"question": question.question}
    answer = answers.get(question.question)
    if question.other and answer is not None:
        if "other" in answer:
            found["other"] = answer["other"]
        answer = answer.get("choice")
        if answer is None:
            return found
    found["answer"] = answer
    if question.kind in _CHOICES and answer is not None:
        several = isinstance(answer, list)
        found["value"] = (
            [question.value_of(each) for each in answer] if several else question.value_of(answer)
        )
    return found
