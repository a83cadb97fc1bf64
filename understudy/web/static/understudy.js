// @ts-check
/**
 * The rows of a conversation in a page of your own: kept in order, and complete after each outage.
 *
 * @typedef {{id: string, kind: string, state: string, text: string, model_text: string | null,
 *   agent_path: string[], run_id: string | null, parent: string | null, at: string | null,
 *   position: string, seq: number | null, detail: Record<string, any>, depth: number}} Row
 * @typedef {{rows: Row[], seq: number | null, reset: boolean, more: boolean}} Update
 * @typedef {{after?: number, wait?: number, source?: (url: string) => EventSource,
 *   onState?: (state: "on" | "off") => void}} Options
 *   `after`: the number of what the page has already. `wait`: milliseconds before it connects again.
 *   `source`: makes the connection. `onState`: is called when the connection comes and goes.
 */

/**
 * The rows after an update, by id. The rows that were given are left as they are.
 * @param {ReadonlyMap<string, Row>} rows
 * @param {Update} update
 * @returns {Map<string, Row>}
 */
export function take(rows, update) {
  const kept = new Map(update.reset ? [] : rows);
  for (const row of update.rows) {
    if (row.state === "void") kept.delete(row.id); // live text that was never recorded
    else kept.set(row.id, row);
  }
  return kept;
}

/**
 * The rows in the order in which they are shown.
 * @param {ReadonlyMap<string, Row>} rows
 * @returns {Row[]}
 */
export function inOrder(rows) {
  return [...rows.values()].sort((a, b) => Number(a.position > b.position) - Number(a.position < b.position));
}

/**
 * Follow a conversation, such as `rows_response` sends it. `show` gets all rows, in order, whenever
 * some have changed. Their texts may be hostile: show them by `textContent`.
 * @param {string} url
 * @param {(rows: Row[], update: Update) => void} show
 * @param {Options} [options]
 * @returns {() => void} ends it
 */
export function followRows(url, show, { after = 0, wait = 1000, source = (at) => new EventSource(at), onState } = {}) {
  /** @type {Map<string, Row>} */
  let rows = new Map();
  /** @type {EventSource} */
  let events;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  const connect = () => {
    events = source(`${url}${url.includes("?") ? "&" : "?"}after=${after}`);
    // The new connection brings what is live now: what was live before may never be recorded.
    events.onopen = () => {
      rows = new Map([...rows].filter(([, row]) => row.seq !== null));
      onState?.("on");
    };
    events.addEventListener("rows", (event) => {
      /** @type {Update} */
      const update = JSON.parse(/** @type {MessageEvent<string>} */ (event).data);
      rows = take(rows, update);
      after = update.seq ?? after;
      show(inOrder(rows), update);
    });
    events.onerror = () => {
      onState?.("off");
      if (events.readyState !== 2) return; // the browser connects again, with `Last-Event-ID`
      timer = setTimeout(connect, wait); // after an answer such as 503 it does not
    };
  };
  connect();
  return () => {
    clearTimeout(timer);
    events.close();
  };
}
