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

// Plots of minutes: the viewer's time zone, with UTC as the title. The table below a plot has its times.
const localPlots = (root) => {
  const format = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  for (const plot of root.querySelectorAll("figure.plot")) {
    const minutes = new Map();
    for (const { dateTime } of plot.querySelectorAll("tbody time[datetime]")) {
      minutes.set(dateTime.slice(11, 16), format.format(new Date(dateTime)));
    }
    for (const label of plot.querySelectorAll("svg text")) {
      const utc = label.textContent.trim();
      if (utc === "Minute (UTC)") label.textContent = "Minute";
      if (!minutes.has(utc)) continue;
      const title = document.createElementNS("http://www.w3.org/2000/svg", "title");
      title.textContent = `${utc} UTC`;
      label.replaceChildren(minutes.get(utc), title);
    }
  }
};

// Periods and moments: they can be in the viewer's time zone, and are unless the form has a period or a moment already.
const MOMENTS = "input[type^=date], input[name=since], input[name=expires_at], input[name=as_of]";
const hasPeriod = (form) => [...form.querySelectorAll(MOMENTS)].some((field) => field.value !== "");
const ownZone = (root) => {
  const own = new Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (!own || /^(Etc\/)?(UTC|GMT)$/.test(own)) return;
  for (const select of root.querySelectorAll("form select[name=zone]")) {
    let option = [...select.options].find((one) => one.value === own);
    if (!option) select.append(option = new Option(own, own));
    if (!hasPeriod(select.form)) for (const one of select.options) one.defaultSelected = one === option;
  }
};

const copyButtons = (root) => {
  if (!navigator.clipboard) return;
  for (const button of root.querySelectorAll("button[data-copy]")) button.hidden = false;
};

const printButtons = (root) => { for (const button of root.querySelectorAll("button[data-print]")) button.hidden = false; };
document.addEventListener("click", (event) => { if (event.target.closest("button[data-print]")) print(); });

// A page that follows changes needs no link to load it again.
let isFollowed = false;
const reloadLinks = (root) => { for (const link of root.querySelectorAll("[data-reload]")) link.hidden = isFollowed; };

const improve = (root) => {
  localTimes(root); localPlots(root); ownZone(root); copyButtons(root); printButtons(root); reloadLinks(root);
};

// Reads the page at an address, with its status; nothing if the answer is no page, or leads elsewhere.
const read = async (url, signal) => {
  const response = await fetch(url, { headers: { Accept: "text/html" }, credentials: "same-origin", signal });
  if (response.redirected) return null;
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  return page.querySelector("main") && { page, isRefused: !response.ok };
};

// What tells a node from its siblings: its name, its first class, and what a link, a form, a row or an entry leads to. Further
// classes are states, such as that of a wrong field.
const identity = (node) => {
  if (node.nodeType !== Node.ELEMENT_NODE) return node.nodeName;
  const first = node.matches("tr, li, details") && node.querySelector("a, summary, td");
  const names = ["id", "href", "action", "aria-label"].map((name) => node.getAttribute(name));
  return [node.nodeName, node.classList[0], ...names, first && (first.getAttribute("href") || first.textContent.trim())].join("|");
};

// Makes a node like another one, and keeps what is alike: so the focus stays, what is open, and the place of a reader.
const liken = (now, next) => {
  if (now.nodeType !== Node.ELEMENT_NODE) { if (now.data !== next.data) now.data = next.data; return; }
  for (const { name } of [...now.attributes]) if (!next.hasAttribute(name) && name !== "open") now.removeAttribute(name);
  for (const { name, value } of next.attributes) if (now.getAttribute(name) !== value && name !== "open") now.setAttribute(name, value);
  let at = now.firstChild;
  for (const child of [...next.childNodes]) {
    let like = at;
    while (like && identity(like) !== identity(child)) like = like.nextSibling;
    if (!like) { now.insertBefore(child, at); continue; }
    while (at !== like) { const gone = at; at = at.nextSibling; gone.remove(); }
    liken(like, child);
    at = like.nextSibling;
  }
  while (at) { const gone = at; at = at.nextSibling; gone.remove(); }
};

// Shows the content of another page in place of the present one.
const replace = (page) => {
  const next = page.querySelector("main");
  improve(next);
  liken(document.querySelector("main"), next);
  document.title = page.title;
};

// Shows another address in place of the page. A later call cancels an earlier one, whose answer would be old.
let latest = null;
const show = async (url) => {
  if (latest) latest.abort();
  const { signal } = latest = new AbortController();
  let answer = null;
  // Without the network, or after a later call, the page stays as it is.
  try { answer = await read(url, signal); } catch { return; }
  if (signal.aborted) return;
  if (!answer) { location.assign(url); return; }
  replace(answer.page);
  history.replaceState(null, "", url);
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
    if (!hasPeriod(form)) fields.delete("zone");
    for (const [name, value] of [...fields]) if (value === "") fields.delete(name);
    show(`${form.action.split("?")[0]}?${fields}`);
  }, 300);
});

// Long work in steps: the page sends the form for its next step itself, unless the person has stopped it.
const proceed = (root) => {
  const form = root.querySelector("form[data-proceed]");
  if (form) setTimeout(() => { if (form.isConnected && !form.dataset.stopped) form.requestSubmit(); }, 400);
};
const stopWork = () => { for (const form of document.querySelectorAll("form[data-proceed]")) form.dataset.stopped = "1"; };
document.addEventListener("click", (event) => {
  const stop = event.target.closest("button[data-stop]");
  if (!stop) return;
  stopWork();
  stop.hidden = true;
});
// Whoever fills or sends another form does not lose it to the next step.
document.addEventListener("input", stopWork);
document.addEventListener("submit", (event) => { if (!event.target.matches("[data-proceed]")) stopWork(); });

// The outcome of long work leads on to its page.
const followed = document.querySelector("a[data-follow]");
if (followed) location.replace(followed.href);

// A form is sent once.
document.addEventListener("submit", (event) => {
  const form = event.target;
  // A download leaves the page as it is, so its form can be sent again.
  const to = event.submitter?.getAttribute("formaction") ?? form.action;
  if (form.method !== "post" || to.endsWith(".csv")) return;
  if (form.dataset.sent) event.preventDefault();
  form.dataset.sent = "1";
});
addEventListener("pageshow", () => { for (const form of document.querySelectorAll("form[data-sent]")) delete form.dataset.sent; });

// Live updates: the server says that something may have changed, and the page shows it unless it is hidden, or someone uses it.
const isFilled = (field) => {
  if (field.type === "file") return field.files.length > 0;
  if (field.type === "checkbox" || field.type === "radio") return field.checked !== field.defaultChecked;
  if (field.name === "zone" && !hasPeriod(field.form)) return false; // it has no effect yet
  if (field.localName === "select") return field.selectedIndex !== Math.max(0, [...field.options].findIndex((option) => option.defaultSelected));
  return field.value !== field.defaultValue;
};
let isPressed = false;
addEventListener("pointerdown", () => { isPressed = true; });
for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => { setTimeout(() => { isPressed = false; }); });
const isInUse = () => {
  const [main, active, selection] = [document.querySelector("main"), document.activeElement, getSelection()];
  return isPressed || Boolean(active && active.closest("main form")) || (!selection.isCollapsed && selection.containsNode(main, true))
    || [...main.querySelectorAll("input, select, textarea")].some(isFilled);
};

const follow = (live) => {
  let [shown, isStale, waiting] = [document.querySelector("main").innerHTML, false, 0];
  const look = async () => {
    clearTimeout(waiting);
    if (!isStale || document.hidden) return;
    if (isInUse()) { waiting = setTimeout(look, 2000); return; }
    isStale = false;
    const address = location.href;
    const answer = await read(address).catch(() => null);
    if (!answer || answer.isRefused) return;
    if (document.hidden || isInUse() || address !== location.href) { isStale = true; waiting = setTimeout(look, 2000); return; }
    const main = answer.page.querySelector("main");
    if (main.innerHTML === shown) return;
    shown = main.innerHTML;
    // What was said when the page was opened is not said again.
    for (const region of main.querySelectorAll("[role=status], [role=alert]")) region.removeAttribute("role");
    replace(answer.page);
  };
  // A hidden page has no stream: a browser has few connections to a service, and each stream takes one.
  let source = null;
  const listen = () => {
    if (source) source.close();
    if (document.hidden) return;
    const opened = source = new EventSource(live);
    opened.addEventListener("changed", () => {
      isStale = true;
      clearTimeout(waiting);
      waiting = setTimeout(look, 500);
    });
    // A browser that is refused does not ask again.
    for (const change of ["open", "error"]) {
      opened.addEventListener(change, () => {
        isFollowed = opened.readyState !== EventSource.CLOSED;
        reloadLinks(document);
      });
    }
  };
  listen();
  document.addEventListener("visibilitychange", () => {
    listen();
    isStale = true;
    look();
  });
};

for (const stop of document.querySelectorAll("button[data-stop]")) stop.hidden = false;
proceed(document);
// A page that refuses its address would refuse it again.
const isRefused = performance.getEntriesByType("navigation")[0]?.responseStatus >= 400;
const live = document.querySelector("[data-live]");
isFollowed = Boolean(live) && !isRefused && "EventSource" in window;
if (isFollowed) follow(live.dataset.live);
improve(document);
