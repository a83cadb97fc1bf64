// Keys, the bar of a decision, and what of a request was seen. Everything works without it.
(() => {
  const root = document.documentElement;
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  root.dataset.script = "";

  // ------------------------------------------------------------------- the list
  const setRows = (rows) => {
    if (rows) root.dataset.rows = rows;
    else delete root.dataset.rows;
  };
  let kept = null; // a browser may keep nothing
  try {
    kept = localStorage;
    setRows(kept.getItem("understudy.rows"));
  } catch { /* it is not asked again */ }
  const density = document.getElementById("density");
  if (density) {
    const say = () => density.setAttribute("aria-pressed", String(root.dataset.rows === "dense"));
    density.hidden = false;
    say();
    density.addEventListener("click", () => {
      setRows(root.dataset.rows === "dense" ? "" : "dense");
      kept?.setItem("understudy.rows", root.dataset.rows ?? "");
      say();
    });
  }
  const live = document.getElementById("live");
  if (live && live.querySelector("[data-waiting]")) {
    new MutationObserver(() => {
      const waiting = live.querySelector("[data-waiting]")?.dataset.waiting ?? "0";
      const rest = document.title.replace(/^\(\d+\) /, "");
      const title = waiting === "0" ? rest : `(${waiting}) ${rest}`;
      if (document.title !== title) document.title = title;
    }).observe(live, { subtree: true, childList: true, attributes: true, attributeFilter: ["data-waiting"] });
  }
  const rows = () => all("#live .ask .head h2 a");
  const rowOf = (element) => element?.closest?.(".ask");
  const move = (by) => {
    const links = rows();
    const at = links.findIndex((link) => rowOf(link) === rowOf(document.activeElement));
    const next = links[at < 0 ? (by > 0 ? 0 : links.length - 1) : at + by];
    next?.focus();
    next?.scrollIntoView({ block: "nearest" });
  };
  document.addEventListener("focusin", () => {
    for (const row of all('.ask[aria-current="true"]')) row.removeAttribute("aria-current");
    rowOf(document.activeElement)?.setAttribute("aria-current", "true");
  });

  // ------------------------------------------------------------------- a request
  const bar = document.querySelector(".decision");
  // What is decided on ends at these places: the arguments, and beside them what else is said of them.
  const ends = all(".shown");
  const lowest = () => Math.max(...ends.map((end) => end.getBoundingClientRect().top));
  const LINES = 40;
  const folds = new Set();
  let unfold = () => {};
  if (bar) {
    new ResizeObserver(() => root.style.setProperty("--decision", `${bar.offsetHeight}px`)).observe(bar);
  }
  const approves = all("[data-approves]");
  if (bar && ends.length && approves.length) {
    const more = bar.querySelector(".more");
    const hadFolds = () => folds.size > 0;
    const fold = (block) => {
      const line = parseFloat(getComputedStyle(block).lineHeight) || 20;
      const lines = Math.round(block.scrollHeight / line);
      if (lines <= LINES || block.querySelector(".folded")) return;
      const button = document.createElement("button");
      button.type = "button";
      button.className = "small";
      button.textContent = `Show all of it (${lines} lines)`;
      const one = { isOpen: false };
      one.open = () => {
        one.isOpen = true;
        block.classList.remove("folded");
        button.remove();
        look();
      };
      button.addEventListener("click", one.open);
      block.classList.add("folded");
      block.after(button);
      folds.add(one);
    };
    for (const block of all(".sides .text, .sides pre")) fold(block);
    for (const block of all(".sides table.values")) fold(block);
    // A table may be wider than its box: its last column is an end, too. Its padding shows nothing.
    const PADDING = 12;
    const wide = all(".sides .scroll").map((box) => ({ box, isReached: false }));
    let isReached = false;
    let hadToScroll = false;
    const say = () => {
      const isSeen = isReached && wide.every((one) => one.isReached);
      more.hidden = isSeen;
      for (const button of approves) button.disabled = !isSeen;
      const how = !isSeen ? "" : hadFolds() ? "unfolded" : hadToScroll ? "scrolled" : "at_once";
      for (const field of all('input[name="seen"]')) field.value = how;
    };
    const look = () => {
      // The end of what is folded is not the end.
      if (![...folds].every((one) => one.isOpen)) return say();
      for (const one of wide) {
        const { scrollLeft, clientWidth, scrollWidth } = one.box;
        if (scrollLeft + clientWidth >= scrollWidth - PADDING) one.isReached = true;
        else hadToScroll = true;
      }
      const bottom = window.innerHeight - bar.offsetHeight;
      const place = lowest();
      // From the top of the page: a browser may begin a page where it was left.
      if (place + window.scrollY <= bottom) isReached = true;
      else {
        hadToScroll = true;
        if (place <= bottom + 1) isReached = true;
      }
      say();
    };
    unfold = () => {
      for (const one of folds) if (!one.isOpen) one.open();
      for (const one of wide) if (!one.isReached) one.box.scrollLeft = one.box.scrollWidth;
      const bottom = window.innerHeight - bar.offsetHeight;
      window.scrollBy({ top: Math.max(0, lowest() - bottom + 8), behavior: "instant" });
      look();
    };
    more.querySelector("button").addEventListener("click", unfold);
    addEventListener("scroll", look, { passive: true, capture: true });
    addEventListener("resize", look);
    look();
  }

  // Pressed twice, a button would decide the next request as well, before anybody has seen it.
  const TWICE = 400; // milliseconds
  let pressed = 0;
  try {
    pressed = Number(sessionStorage.getItem("understudy.pressed"));
  } catch { /* as above */ }
  const hold = () => {
    const left = pressed + TWICE - Date.now();
    if (left <= 0 || left > TWICE) return;
    root.dataset.held = "";
    setTimeout(() => { delete root.dataset.held; }, left);
  };
  hold();
  document.addEventListener("click", (event) => {
    if (!event.target.closest?.('button[name="decision"], button[data-approves]')) return;
    if ("held" in root.dataset) {
      event.preventDefault();
      event.stopImmediatePropagation();
      return;
    }
    pressed = Date.now();
    try {
      sessionStorage.setItem("understudy.pressed", String(pressed));
    } catch { /* as above */ }
    hold();
  }, true);

  // ---------------------------------------------------------------- many at once
  const counts = all("[data-ticked]");
  if (counts.length) {
    const say = () => {
      const ticked = all('main input[name="chosen"]').filter((box) => box.checked).length;
      for (const count of counts) count.textContent = String(ticked);
    };
    document.addEventListener("change", say);
    say();
  }

  // ------------------------------------------------------------------------ keys
  const reason = () => document.querySelector('form textarea[data-key="r"]');
  const press = () => {
    const button = bar.querySelector('[data-key="a"]');
    // While the edit is open it is not there: what was asked, or what is typed?
    if (button) return button.disabled || !button.checkVisibility() ? undefined : button.click();
    // A question has no approval: its answer is typed, and sent by Ctrl+Enter.
    document.querySelector("#answer, #decision")?.querySelector(".card input:not([type=hidden]), .card textarea, .card select")?.focus();
  };
  const open = (row, part) => {
    const link = row?.querySelector(".head h2 a");
    if (link) location.assign(link.href + part);
  };
  const edit = () => {
    const form = document.getElementById("edit");
    if (!form) return;
    form.open = true;
    form.scrollIntoView({ block: "start" });
    form.querySelector("input:not([type=hidden]), textarea, select")?.focus();
  };
  const keys = {
    j: { what: "the next request", list: () => move(1), request: () => document.getElementById("next")?.click() },
    k: { what: "the one before", list: () => move(-1), request: () => document.getElementById("previous")?.click() },
    a: { what: "approve, or write an answer and send it by Ctrl+Enter (in the list: look at it)", list: (row) => open(row, ""), request: press },
    e: { what: "edit", list: (row) => open(row, "#edit"), request: edit },
    r: { what: "reject: write why, then Enter", list: (row) => open(row, "#why"), request: () => reason()?.focus() },
    x: { what: "choose it (on its page: show the rest)", list: (row) => row?.querySelector('input[name="chosen"]')?.click(), request: () => unfold() },
    "?": { what: "these keys" },
  };
  const help = () => {
    const dialog = document.createElement("dialog");
    dialog.className = "keys";
    dialog.setAttribute("aria-label", "Keys");
    const heading = document.createElement("h2");
    heading.textContent = "Keys";
    const list = document.createElement("dl");
    for (const [key, { what }] of Object.entries(keys)) {
      const term = document.createElement("dt");
      const name = document.createElement("kbd");
      name.textContent = key;
      term.append(name);
      const text = document.createElement("dd");
      text.textContent = what;
      list.append(term, text);
    }
    const close = document.createElement("button");
    close.textContent = "Close";
    close.addEventListener("click", () => dialog.close());
    dialog.append(heading, list, close);
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  };
  const isTyped = (target) => target.closest("input:not([type=checkbox]), textarea, select, dialog, [contenteditable]");
  document.addEventListener("keydown", (event) => {
    const target = event.target instanceof Element ? event.target : document.body;
    const isSent = event.key === "Enter" && (event.ctrlKey || event.metaKey);
    if (event.altKey || event.isComposing) return;
    if (target === reason() && event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      target.form.querySelector('button[value="reject"]')?.click();
      return;
    }
    if (isSent && isTyped(target) && target.form?.method === "post") {
      const choice = target.closest(".choice") ?? target.form;
      event.preventDefault();
      choice.querySelector('button[name="decision"]:enabled, button.good:enabled')?.click();
      return;
    }
    if (event.ctrlKey || event.metaKey) return;
    if (isTyped(target)) {
      if (event.key === "Escape") target.blur?.();
      return;
    }
    if (event.repeat || !(event.key in keys)) return;
    event.preventDefault();
    if (event.key === "?") help();
    else if (bar) keys[event.key].request();
    else if (rows().length) keys[event.key].list(rowOf(document.activeElement));
  });
  bar?.querySelector('[data-key="e"]')?.addEventListener("click", (event) => {
    event.preventDefault();
    edit();
  });
  // A browser takes the focus away when it has gone to the place of the address.
  if (bar && location.hash === "#edit") {
    history.replaceState(history.state, "", location.pathname + location.search);
    edit();
  }
  if (bar && location.hash === "#why") reason()?.focus();
})();
