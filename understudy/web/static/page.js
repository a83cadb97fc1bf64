// Says on the page whether it is live. Everything else works without it.
(() => {
  const say = (state) => { document.documentElement.dataset.live = state; };
  document.addEventListener("htmx:sse:after:connection", () => say("on"));
  document.addEventListener("htmx:sse:error", () => say("off"));
  // The server is there, and its store is not.
  // On a phone the links to the pages are a line that scrolls: the page that is shown is in view.
  const here = document.querySelector(".bar nav a[aria-current]");
  if (here) here.parentElement.scrollLeft = here.offsetLeft - here.parentElement.offsetLeft - 24;
  document.addEventListener("away", () => say("away"));
  document.addEventListener("back", () => say("on"));
  // A browser has six connections to a server: a page that nobody sees takes none. htmx lets go of
  // one when a page is hidden; here is the page that is hidden when it begins, or while it connects.
  let held = null;
  const hold = (event) => {
    if (document.hidden && event.target.id === "live") {
      event.preventDefault();
      held = event.target;
    }
  };
  document.addEventListener("htmx:before:request", hold);
  document.addEventListener("htmx:sse:before:connection", hold);
  document.addEventListener("visibilitychange", () => {
    const waiting = held;
    if (document.hidden || !waiting) return;
    held = null;
    waiting.dispatchEvent(new Event("shown"));
  });
})();
