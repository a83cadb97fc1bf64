// A client of Vercel's AI SDK. It says what it does as lines of JSON, and waits for a line to answer.
import readline from "node:readline";
import { DefaultChatTransport, readUIMessageStream } from "ai";

const [api, user] = process.argv.slice(2);
const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const say = (told) => console.log(JSON.stringify(told));
const transport = new DefaultChatTransport({ api, headers: { "x-user": user } });
const messages = [{ id: "m1", role: "user", parts: [{ type: "text", text: "Refund both." }] }];

async function send() {
  let error = null;
  const before = messages.at(-1).role === "assistant" ? messages.at(-1) : undefined;
  const stream = await transport.sendMessages({
    chatId: "t1",
    messages,
    trigger: "submit-message",
    messageId: undefined,
  });
  const onError = (thrown) => (error = thrown.message);
  let message = before;
  for await (const each of readUIMessageStream({ message: before, stream, onError })) message = each;
  if (before) messages.pop();
  if (message) messages.push(message);
  say({ error, parts: message?.parts ?? [] });
}

await send();
for await (const line of lines) {
  const approvals = JSON.parse(line);
  for (const part of messages.at(-1).parts) {
    const approved = approvals[part.toolCallId];
    if (approved === undefined) continue;
    part.state = "approval-responded";
    part.approval = { id: part.approval.id, approved };
  }
  await send();
}
process.exit(0);
