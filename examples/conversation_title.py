"""A title for each conversation: asked beside it, by a small model, once."""

from pydantic import BaseModel, Field

from understudy import Agent, Completed, Outcome, Run, Runtime, ScriptedModel
from understudy.errors import ModelFailed
from understudy.middleware import Middleware


class Title(BaseModel):
    title: str = Field(max_length=40)


# 1. The middleware. It asks when the first run of a conversation is completed.
class Titles(Middleware):
    """Gives each conversation a title, and keeps it where the program looks for it."""

    def __init__(self, model: ScriptedModel, titles: dict[str, str]) -> None:
        self.model = model
        self.titles = titles

    async def on_run_end(self, run: Run, outcome: Outcome) -> None:
        if run.agent_id in self.titles or not isinstance(outcome, Completed):
            return
        # 2. Recorded under its key: after a crash here, the hook runs again and the model is not
        #    asked again. An answer that is too long is asked for again, at most twice.
        try:
            found = await run.ask_model(
                "title",
                f"Give this conversation a title of a few words. It ends with:\n{outcome.text}",
                self.model,
                output_type=Title,
            )
        except ModelFailed:
            return  # the conversation is fine without one; the next run asks again
        self.titles[run.agent_id] = found.title


def main() -> None:
    titles: dict[str, str] = {}
    small = ScriptedModel(
        [
            '{"title": "A conversation about kettles, about what they cost and about tea"}',
            '{"title": "Kettles"}',
        ],
        name="small",
    )
    model = ScriptedModel(["A kettle costs 39 euros.", "It boils a litre."], name="large")
    agent = Agent("clerk", model, "You sell kettles.", middleware=[Titles(small, titles)])

    with Runtime([agent]) as runtime:
        ref = runtime.spawn("clerk", id="chat-1")
        for question in ("What is a kettle?", "How much does it boil?"):
            outcome = ref.run(question).get(timeout=60)
            assert isinstance(outcome, Completed), outcome
            usage = outcome.usage
            print(f"{question} {outcome.text} (requests: {usage.requests})")

        # 3. It is no part of the conversation, and the history tells of it.
        print(f"The title: {titles['chat-1']}")
        print(f"{len(outcome.state.messages)} messages in the conversation")
        for entry in ref.history().get(timeout=60):
            if entry.what == "model_asked":
                print(f"{entry.who} was asked for {entry.detail['key']}: {entry.detail['answer']}")


if __name__ == "__main__":
    main()
