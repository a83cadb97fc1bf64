// A client of AG-UI. It says what it does as lines of JSON, and waits for a line before it answers.
import readline from "node:readline";
import { HttpAgent } from "@ag-ui/client";

const [url, user] = process.argv.slice(2);
const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const say = (told) => console.log(JSON.stringify(told));
const agent = new HttpAgent({ url, threadId: "t1", headers: { "x-user": user } });

async function run(parameters = {}) {
  const types = [];
  let text = "";
  let error = null;
  const subscriber = {
    onEvent: ({ event }) => {
      types.push(event.type);
      if (event.type === "RUN_ERROR") error = event.code;
      if (event.type === "TEXT_MESSAGE_CONTENT" && !event.subagentRunId) text += event.delta;
    },
  };
  try {
    await agent.runAgent(parameters, subscriber);
  } catch (thrown) {
    error ??= String(thrown);
  }
  const { pendingInterrupts: asked, messages } = agent;
  say({ types, text, error, asked, roles: messages.map((message) => message.role) });
}

agent.addMessage({ id: "m1", role: "user", content: "Refund both." });
await run();
for await (const line of lines) await run(JSON.parse(line));
process.exit(0);
