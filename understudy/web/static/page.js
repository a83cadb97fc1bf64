// Says on the page whether it is live. Everything else works without it.
(() => {
  const say = (state) => { document.documentElement.dataset.live = state; };
  document.addEventListener("htmx:sse:after:connection", () => say("on"));
  document.addEventListener("htmx:sse:error", () => say("off"));
})();
