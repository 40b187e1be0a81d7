// Improvements for browsers with scripts. Every page works without.
"use strict";

// Times: the viewer's time zone, with UTC as the title.
const localTimes = (root) => {
  const format = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
  for (const time of root.querySelectorAll("time[datetime]")) {
    const at = new Date(time.dateTime);
    if (!Number.isNaN(at.getTime())) time.textContent = format.format(at);
  }
};

const copyButtons = (root) => {
  if (!navigator.clipboard) return;
  for (const button of root.querySelectorAll("button[data-copy]")) button.hidden = false;
};

const printButtons = (root) => { for (const button of root.querySelectorAll("button[data-print]")) button.hidden = false; };
document.addEventListener("click", (event) => { if (event.target.closest("button[data-print]")) print(); });

const improve = (root) => { localTimes(root); copyButtons(root); printButtons(root); };

// Replaces the content of the page by that of another address, and keeps the focus.
const show = async (url, push) => {
  const response = await fetch(url, { headers: { Accept: "text/html" }, credentials: "same-origin" });
  if (!response.ok || response.redirected) { location.assign(url); return; }
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  const [next, now] = [page.querySelector("main"), document.querySelector("main")];
  if (!next || !now) { location.assign(url); return; }
  const focused = document.activeElement && document.activeElement.id;
  const place = focused && document.activeElement.selectionStart;
  now.replaceChildren(...next.childNodes);
  document.title = page.title;
  improve(now);
  const again = focused && document.getElementById(focused);
  if (again) {
    again.focus();
    if (typeof place === "number" && again.setSelectionRange && again.type !== "email" && again.type !== "number") again.setSelectionRange(place, place);
  }
  if (push) history.replaceState(null, "", url);
};

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-copy]");
  if (!button) return;
  await navigator.clipboard.writeText(button.dataset.copy);
  button.textContent = "Copied";
});

// Filters without a reload of the page.
let waiting = 0;
document.addEventListener("input", (event) => {
  const form = event.target.closest("form[data-filters]");
  if (!form) return;
  clearTimeout(waiting);
  waiting = setTimeout(() => {
    const fields = new URLSearchParams(new FormData(form));
    for (const [name, value] of [...fields]) if (value === "") fields.delete(name);
    show(`${form.action.split("?")[0]}?${fields}`, true);
  }, 300);
});

// Long work in steps: the page sends the form for its next step itself, unless the person has stopped it.
const proceed = (root) => {
  const form = root.querySelector("form[data-proceed]");
  if (form) setTimeout(() => { if (form.isConnected && !form.dataset.stopped) form.requestSubmit(); }, 400);
};
document.addEventListener("click", (event) => {
  const stop = event.target.closest("button[data-stop]");
  if (!stop) return;
  for (const form of document.querySelectorAll("form[data-proceed]")) form.dataset.stopped = "1";
  stop.hidden = true;
});

// A form is sent once.
document.addEventListener("submit", (event) => {
  if (event.target.method !== "post" || event.target.dataset.sent) { if (event.target.dataset.sent) event.preventDefault(); return; }
  event.target.dataset.sent = "1";
});
addEventListener("pageshow", () => { for (const form of document.querySelectorAll("form[data-sent]")) delete form.dataset.sent; });

// Live updates: the server says that something changed, and the page shows it unless someone fills in a form.
const live = document.querySelector("[data-live]");
if (live && "EventSource" in window) {
  const source = new EventSource(live.dataset.live);
  let pending = 0;
  source.addEventListener("changed", () => {
    clearTimeout(pending);
    pending = setTimeout(() => {
      const active = document.activeElement;
      if (!active || !active.closest("main form")) show(location.href, false);
    }, 500);
  });
}

for (const stop of document.querySelectorAll("button[data-stop]")) stop.hidden = false;
proceed(document);
improve(document);
