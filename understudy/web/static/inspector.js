// Times by the clock of who reads them, a conversation that is followed, and the changes of an edit
// as they are typed. Everything works without it.
(() => {
  // ------------------------------------------------------------------ times
  const parts = new Intl.DateTimeFormat("en-GB", {
    year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit",
    second: "2-digit", hourCycle: "h23", timeZoneName: "short",
  });
  const of = (date) => Object.fromEntries(parts.formatToParts(date).map((each) => [each.type, each.value]));
  const day = (p) => `${p.year}-${p.month}-${p.day}`;
  const localised = (time) => {
    const date = new Date(time.dateTime);
    if (Number.isNaN(date.getTime())) return;
    const p = of(date);
    const clock = `${p.hour}:${p.minute}`;
    const full = `${day(p)} ${clock}:${p.second} ${p.timeZoneName}`;
    const utc = `${date.toISOString().slice(0, 19).replace("T", " ")} UTC`;
    const form = time.dataset.as;
    let text = null;
    if (form === "full") text = full;
    if (form === "minute") {
      const isToday = day(p) === day(of(new Date()));
      text = isToday ? `${clock} ${p.timeZoneName}` : `${day(p)} ${clock} ${p.timeZoneName}`;
    }
    const title = form === "relative" ? `${full} (${utc})` : utc;
    // Only what differs: each change is seen by the observer below.
    if (text !== null && time.textContent !== text) time.textContent = text;
    if (time.title !== title) time.title = title;
  };

  // ----------------------------------------------------------- conversation
  const NEAR = 48; // pixels from the end that count as being there
  const box = () => document.getElementById("conversation");
  // It is filled from its end: 0 there, and less above it.
  const isAtEnd = (it) => it.scrollTop >= -NEAR;
  let last = null; // what the last look found: the last row, and whether the reader was at the end
  const fit = (it) => {
    const top = it.getBoundingClientRect().top + window.scrollY;
    const below = window.innerHeight - top - 24; // what the window has below the head of the page
    const height = `${Math.round(below >= 320 ? below : window.innerHeight * 0.65)}px`;
    if (it.style.maxHeight !== height) it.style.maxHeight = height;
  };
  // In a small window its end would be below what is seen.
  const show = (it) => {
    const beyond = it.getBoundingClientRect().bottom + 12 - window.innerHeight;
    if (beyond > 0 && window.scrollY === 0) window.scrollBy(0, beyond);
  };
  const look = () => {
    const it = box();
    if (!it) {
      last = null;
      return;
    }
    fit(it);
    const rows = it.querySelectorAll(".rows > .row");
    const row = rows[rows.length - 1];
    const now = { rows: rows.length, id: row?.id, size: row?.textContent.length };
    const isNew = last && (now.id !== last.id || now.size !== last.size);
    if (isNew && !isAtEnd(it)) {
      document.documentElement.dataset.below = "new";
      // What the reader looks at stays where it is, though the box is measured from its end.
      const grown = it.scrollHeight - last.height;
      if (grown && Math.abs(it.scrollTop - last.top) < 1) it.scrollTop -= grown;
    }
    if (isAtEnd(it)) delete document.documentElement.dataset.below;
    last = { ...now, height: it.scrollHeight, top: it.scrollTop };
  };
  document.addEventListener("scroll", (event) => {
    if (event.target !== box()) return;
    if (isAtEnd(event.target)) delete document.documentElement.dataset.below;
    if (last) last.top = event.target.scrollTop;
  }, true);
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.('a[href="#end"]');
    const it = box();
    if (!link || !it) return;
    event.preventDefault();
    it.scrollTop = 0;
    it.focus({ preventScroll: true });
    delete document.documentElement.dataset.below;
  });
  window.addEventListener("resize", () => { const it = box(); if (it) fit(it); });

  // ---------------------------------------------------------- what is edited
  const WAIT = 400; // milliseconds without a key
  let timer = null;
  let asked = 0;
  const preview = async (form) => {
    const number = ++asked;
    const body = new URLSearchParams(new FormData(form));
    body.set("do", "changes");
    let page = null;
    try {
      const answer = await fetch(location.pathname, { method: "POST", body, redirect: "error" });
      if (answer.ok) page = await answer.text();
    } catch { /* the page says already that the server is away; the button shows the changes */ }
    if (page === null || number !== asked) return;
    const found = new DOMParser().parseFromString(page, "text/html").getElementById(form.dataset.preview);
    const shown = document.getElementById(form.dataset.preview);
    if (found && shown) shown.replaceChildren(...found.childNodes);
  };
  document.addEventListener("input", (event) => {
    const form = event.target.closest?.("form[data-preview]");
    if (!form) return;
    clearTimeout(timer);
    timer = setTimeout(() => preview(form), WAIT);
  });

  // ------------------------------------------------------------------- always
  const refresh = () => {
    for (const time of document.querySelectorAll("time[data-as]")) localised(time);
    look();
  };
  // What a live page puts in place is changed before it is drawn.
  new MutationObserver(refresh).observe(document.body, { childList: true, subtree: true, characterData: true });
  refresh();
  const it = box();
  if (it && location.hash === "#here") document.getElementById("here")?.scrollIntoView({ block: "center" });
  else if (it && !location.hash) show(it);
})();
