// A client of AG-UI in one file. All that it shows is text: nothing of it is ever markup.

const rows = document.querySelector("#rows");
const status = document.querySelector("#status");
const form = document.querySelector("#say");
const text = document.querySelector("#text");

// The address names the conversation, so that it is there after a reload.
if (!location.hash) location.replace(`#${crypto.randomUUID()}`);
const threadId = location.hash.slice(1);

let messages = [];
let calls = new Map();
let asked = [];
let asking = { of: "", form: null };
let busy = false;

function element(tag, attributes, ...children) {
  const made = Object.assign(document.createElement(tag), attributes);
  made.append(...children);
  return made;
}

function callRow(call, result) {
  const name = element("b", {}, call.function.name);
  const done = result === undefined ? "" : ` → ${result}`;
  return element("div", { className: "row call" }, name, ` ${call.function.arguments}${done}`);
}

function show() {
  const results = new Map();
  for (const message of messages) {
    if (message.role === "tool") results.set(message.toolCallId, message.content);
  }
  const shown = [];
  for (const message of messages) {
    if (message.role === "tool") continue;
    const content = typeof message.content === "string" ? message.content : "";
    if (content) shown.push(element("div", { className: `row ${message.role}` }, content));
    for (const call of message.toolCalls ?? []) shown.push(callRow(call, results.get(call.id)));
  }
  rows.replaceChildren(...shown, ...(asked.length ? [askedForm()] : []));
  for (const control of asking.form?.elements ?? []) {
    control.disabled = busy || "fixed" in control.dataset;
  }
  for (const control of form.elements) control.disabled = busy || asked.length > 0;
  rows.lastElementChild?.scrollIntoView({ block: "nearest" });
}

// All that is asked is answered at once: the endpoint takes all of it, or nothing. What was typed
// stays as long as the same is asked: nobody approves other values than they see.
function askedForm() {
  const of = JSON.stringify(
    asked.map(({ id, metadata: { understudy: about } }) => [id, about.digest, voting(about)]),
  );
  if (asking.of !== of) asking = { of, form: madeForm() };
  return asking.form;
}

// Where persons vote: what is missing, and for whom the vote of this user counts, or why it does not.
function voting(about) {
  if (!about.mustAgree) return "";
  const missing = about.missing ? `${about.missing} is missing.` : "Enough have agreed.";
  const own = about.whyNoVote
    ? `You may not vote: ${about.whyNoVote}.`
    : about.votesFor
      ? `You vote for ${about.votesFor.name}.`
      : about.hasVoted
        ? "You have voted."
        : `You vote as ${about.countsAs.join(", ")}.`;
  return `${about.mustAgree} must agree: ${missing} ${own}`;
}

function madeForm() {
  const made = element("form", { className: "asked" });
  for (const interrupt of asked) {
    const about = interrupt.metadata.understudy;
    made.append(element("h2", {}, `May I call ${about.toolName}?`));
    if (about.mustAgree) made.append(element("p", {}, voting(about)));
    const edited = interrupt.responseSchema?.properties?.editedArgs?.properties ?? {};
    for (const [name, value] of Object.entries(about.arguments)) {
      const type = edited[name]?.type;
      const shown = typeof value === "string" ? value : JSON.stringify(value);
      const input = element("input", { name: `${interrupt.id}.${name}`, value: shown });
      if (!(name in edited)) input.dataset.fixed = "";
      if (type === "number" || type === "integer") input.inputMode = "decimal";
      made.append(element("label", {}, name, input));
    }
  }
  const approve = element("button", { type: "button", className: "main" }, "Approve");
  const reject = element("button", { type: "button" }, "Reject");
  approve.onclick = () => answer(made, true);
  reject.onclick = () => answer(made, false);
  made.append(element("div", { className: "buttons" }, approve, reject));
  made.onsubmit = (event) => event.preventDefault(); // Enter decides nothing
  return made;
}

function answer(made, approved) {
  const resume = asked.map((interrupt) => {
    const about = interrupt.metadata.understudy;
    const payload = { approved };
    if (approved) {
      const given = {};
      let isEdited = false;
      for (const [name, value] of Object.entries(about.arguments)) {
        const typed = made.elements[`${interrupt.id}.${name}`].value;
        const before = typeof value === "string" ? value : JSON.stringify(value);
        if (typed !== before) isEdited = true;
        given[name] = typed === before ? value : typeof value === "string" ? typed : parsed(typed);
      }
      if (isEdited) payload.editedArgs = given;
    }
    const metadata = { understudy: { digest: about.digest } };
    return { interruptId: interrupt.id, status: "resolved", payload, metadata };
  });
  run({ resume });
}

function parsed(typed) {
  try {
    return JSON.parse(typed);
  } catch {
    return typed; // the tool's own check says what is wrong
  }
}

function apply(event) {
  switch (event.type) {
    case "MESSAGES_SNAPSHOT":
      messages = event.messages.filter((message) => !message.subagentRunId);
      calls = new Map(messages.flatMap((m) => (m.toolCalls ?? []).map((c) => [c.id, c])));
      break;
    case "TEXT_MESSAGE_START":
    case "REASONING_MESSAGE_START":
      if (!event.subagentRunId && !messages.some((m) => m.id === event.messageId)) {
        const role = event.type === "TEXT_MESSAGE_START" ? "assistant" : "reasoning";
        messages.push({ id: event.messageId, role, content: "" });
      }
      break;
    case "TEXT_MESSAGE_CONTENT":
    case "REASONING_MESSAGE_CONTENT": {
      const message = messages.find((each) => each.id === event.messageId);
      if (message) message.content += event.delta;
      break;
    }
    case "TOOL_CALL_START": {
      if (event.subagentRunId) break;
      const made = { name: event.toolCallName, arguments: "" };
      const call = { id: event.toolCallId, type: "function", function: made };
      calls.set(call.id, call);
      const parent = messages.find((each) => each.id === event.parentMessageId);
      if (parent) parent.toolCalls = [...(parent.toolCalls ?? []), call];
      break;
    }
    case "TOOL_CALL_ARGS":
      if (calls.has(event.toolCallId)) calls.get(event.toolCallId).function.arguments += event.delta;
      break;
    case "TOOL_CALL_RESULT":
      if (calls.has(event.toolCallId)) {
        const { messageId: id, toolCallId, content } = event;
        messages.push({ id, role: "tool", toolCallId, content });
      }
      break;
    case "RUN_FINISHED":
      asked = event.outcome?.type === "interrupt" ? event.outcome.interrupts : [];
      break;
    case "RUN_ERROR":
      throw new Error(`${event.message} (${event.code})`);
  }
}

async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let left = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (left + value).split("\n");
    left = lines.pop();
    for (const line of lines) if (line.startsWith("data: ")) yield JSON.parse(line.slice(6));
  }
}

async function run(more = {}, refused = "") {
  let wrong = refused;
  busy = true;
  say("…");
  show();
  try {
    const body = { threadId, runId: crypto.randomUUID(), protocolVersion: "1.0", messages, ...more };
    const headers = { "Content-Type": "application/json" };
    const request = { method: "POST", headers, body: JSON.stringify(body) };
    const response = await fetch("ag-ui/", request);
    if (!response.ok) throw new Error((await response.json()).detail);
    for await (const event of eventsOf(response)) {
      apply(event);
      show();
    }
  } catch (error) {
    wrong = error.message;
  }
  // An answer that was refused may be about what nobody asks any more.
  if (wrong && more.resume) return run({}, wrong);
  busy = false;
  say(wrong || (asked.length ? "Waiting for your answer." : ""), wrong !== "");
  show();
}

function say(what, isError = false) {
  status.textContent = what;
  status.className = isError ? "error" : "";
}

form.onsubmit = (event) => {
  event.preventDefault();
  messages.push({ id: crypto.randomUUID(), role: "user", content: text.value });
  text.value = "";
  run();
};
text.onkeydown = (event) => {
  if (event.key === "Enter" && !event.shiftKey) {
    event.preventDefault();
    form.requestSubmit();
  }
};
document.querySelector("#new").onclick = () => {
  location.hash = crypto.randomUUID();
  location.reload();
};

// Nothing is new: the server tells what has been said, and goes on with what is under way.
run();
