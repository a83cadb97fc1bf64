// A page that follows rows by `understudy.js`, whose connections the test plays: lines of JSON say
// what comes. At the end it says what was connected to, and what was shown.
import fs from "node:fs";
import readline from "node:readline";

const script = fs.readFileSync(process.argv[2], "utf8");
const { followRows } = await import(`data:text/javascript,${encodeURIComponent(script)}`);

class Source extends EventTarget {
  constructor(url) {
    super();
    this.url = url;
    this.readyState = 0;
  }
  close() {
    this.readyState = 2;
  }
}

const sources = [];
const shown = [];
const states = [];
let connected = () => {};
const source = (url) => {
  sources.push(new Source(url));
  connected();
  return sources.at(-1);
};
const show = (rows) => shown.push(rows.map(({ id, text, state }) => [id, text, state]));
const end = followRows("/rows", show, { after: 3, wait: 1, source, onState: (state) => states.push(state) });

for await (const line of readline.createInterface({ input: process.stdin })) {
  const { open, update, error } = JSON.parse(line);
  const events = sources.at(-1);
  if (open) events.onopen(new Event("open"));
  if (update) events.dispatchEvent(new MessageEvent("rows", { data: JSON.stringify(update) }));
  if (error !== undefined) {
    const again = new Promise((resolve) => (connected = resolve));
    events.readyState = error;
    events.onerror(new Event("error"));
    if (error === 2) await again;
  }
}
end();
const closed = sources.at(-1).readyState === 2;
console.log(JSON.stringify({ urls: sources.map(({ url }) => url), shown, states, closed }));
