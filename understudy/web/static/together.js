// What several people do at the same time, on a page that is open. Everything works without it:
// an answer that comes too late is refused by the server, which says who was faster.
(() => {
  const ROW = "[id^='r-']";
  const live = document.getElementById("live");
  if (!live) return;

  const made = (name, text, attributes = {}) => {
    const node = document.createElement(name);
    node.textContent = text;
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    return node;
  };

  // ------------------------------------------------- somebody else was faster with an answer

  let sent = false;
  document.addEventListener("submit", () => { sent = true; });
  window.addEventListener("pageshow", () => { sent = false; });

  const deciding = () =>
    [...document.querySelectorAll("main form")].filter((form) => form.querySelector("input[name=digest]"));

  const isTyped = (field) => {
    if (field.matches("textarea, input:not([type=hidden], [type=checkbox], [type=radio])")) {
      return field.value !== field.defaultValue && field.value.trim() !== "";
    }
    return field.matches("select") && [...field.options].some((each) => each.selected !== each.defaultSelected)
      && field.selectedIndex > 0;
  };

  const labelOf = (field) => {
    const label = field.labels && field.labels[0];
    if (!label) return field.getAttribute("aria-label") || field.name;
    const copy = label.cloneNode(true);
    for (const inner of copy.querySelectorAll("textarea, select, input, .faint")) inner.remove();
    return copy.textContent.trim() || field.name;
  };

  const cover = () => {
    const mark = live.querySelector("[data-decided]");
    const forms = mark && !sent ? deciding().filter((form) => !form.dataset.covered) : [];
    if (!forms.length) return;
    const note = made("div", "", { class: "note bad covered", tabindex: "-1", role: "alert" });
    const typed = forms.flatMap((form) => [...form.elements]).filter(isTyped);
    const said = made("p", "");
    said.append(made("strong", mark.dataset.decided), " Your answer is not sent.");
    note.append(said);
    if (typed.length) note.append(made("p", "What you typed is kept here:"));
    for (const [at, field] of typed.entries()) {
      const text = field.matches("select") ? field.selectedOptions[0].text : field.value;
      const rows = Math.min(12, text.split("\n").length + 1);
      const line = made("p", "", { class: "field" });
      line.append(made("label", labelOf(field), { for: `kept-${at}` }));
      line.append(made("textarea", text, { id: `kept-${at}`, readonly: "", rows }));
      note.append(line);
    }
    const hadFocus = forms.some((form) => [...form.elements].includes(document.activeElement));
    const outer = (form) => (form.parentElement.matches("details") ? form.parentElement : form);
    outer(forms[0]).before(note);
    for (const form of forms) {
      form.dataset.covered = "";
      for (const field of form.elements) field.disabled = true;
      outer(form).hidden = true;
    }
    for (const form of document.querySelectorAll("[data-while-open]")) form.hidden = true;
    if (hadFocus) note.focus({ preventScroll: true });
  };
  document.addEventListener("htmx:after:swap", cover);
  cover();

  // --------------------------------------- rows do not move under the pointer, nor under the focus

  let isOver = false;
  let waiting = null; // the newest part, which is not shown yet
  const bar = made("div", "", { class: "arrived", role: "status", hidden: "" });
  const show = made("button", "", { type: "button" });
  bar.append(show);
  live.before(bar);

  const isHeld = () => isOver || live.contains(document.activeElement);

  const apply = () => {
    if (waiting === null) return;
    const text = waiting;
    waiting = null;
    bar.hidden = true;
    window.htmx.swap({ sourceElement: live, target: live, swap: "innerMorph swapEmpty:false", text });
  };

  const end = async (row) => {
    const link = row.querySelector("a[href*='/requests/']");
    if (!link || row.dataset.ended !== undefined) return;
    row.dataset.ended = "";
    const answer = await fetch(`${link.href.split(/[?#]/)[0]}/told`, { headers: { Accept: "application/json" } })
      .then((response) => (response.ok ? response.json() : { told: null }))
      .catch(() => ({ told: null }));
    if (answer.told === null) { // it is on another page by now, or it is not known
      delete row.dataset.ended;
      return;
    }
    row.dataset.ended = answer.told;
    for (const box of row.querySelectorAll("input")) {
      box.checked = false;
      box.disabled = true;
    }
  };

  const mark = (text) => {
    const next = new DOMParser().parseFromString(text, "text/html");
    const ids = new Set([...next.querySelectorAll(ROW)].map((row) => row.id));
    const rows = [...live.querySelectorAll(ROW)];
    const here = new Set(rows.map((row) => row.id));
    const gone = rows.filter((row) => !ids.has(row.id));
    gone.forEach(end);
    const fresh = [...ids].filter((id) => !here.has(id)).length;
    const told = [fresh ? `${fresh} new` : "", gone.length ? `${gone.length} gone` : ""].filter(Boolean);
    show.textContent = told.length ? `${told.join(", ")}: show` : "";
    bar.hidden = !told.length;
  };

  document.addEventListener("htmx:sse:before:message", (event) => {
    const { message } = event.detail;
    if (event.target !== live || message.event || !live.querySelector(ROW)) return;
    if (!isHeld()) {
      waiting = null;
      bar.hidden = true;
      return;
    }
    event.preventDefault();
    event.detail.cancelled = true;
    waiting = message.data;
    mark(waiting);
  });
  show.addEventListener("click", apply);
  live.addEventListener("pointerenter", (event) => { isOver = event.pointerType !== "touch"; });
  live.addEventListener("pointerleave", () => {
    isOver = false;
    if (!isHeld()) apply();
  });
  live.addEventListener("focusout", (event) => {
    const stays = event.relatedTarget && live.contains(event.relatedTarget);
    if (!stays && !isOver && event.relatedTarget !== show) apply();
  });
})();
