// The console without this file is whole: pages, forms and links. With it pages are live, times are relative, keys work in the inbox.

const shows = (id) => (isSo) => { const notice = document.getElementById(id); if (notice) notice.hidden = !isSo; };
const lost = shows("connection");
const outdated = shows("outdated");
const behind = shows("behind");

/** Ask for a part of the page. */
const asked = (address) => fetch(address, { headers: { accept: "application/problem+json" } });

/** Return whether the server itself does not give a part any more; that it has too much to do is no such answer. */
function isRefused(response) {
  const isOurs = response.headers.get("content-type")?.startsWith("application/problem+json");
  return isOurs && response.status >= 400 && response.status < 500 && response.status !== 429;
}

/** Return the elements of a part of a page that the server has rendered and escaped. */
function parsed(text) {
  const template = document.createElement("template");
  template.innerHTML = text;
  return template.content;
}

/** What is to replace elements that a person is using, as soon as nobody does: there may be no next time. */
const held = new WeakMap();

function hold(shown, element) {
  if (!held.has(shown)) {
    shown.addEventListener("focusout", () => setTimeout(() => {
      const latest = held.get(shown);
      held.delete(shown);
      if (shown.isConnected) renew(shown, latest);
    }), { once: true });
  }
  held.set(shown, element);
}

/** What tells a part that can be unfolded from the others around it. */
const placeOf = (details) => `${details.parentElement.closest("[id]")?.id} ${details.querySelector("summary")?.textContent}`;

const unfoldedIn = (shown) => new Set([...shown.querySelectorAll("details[open]")].map(placeOf));

/** Have what somebody has unfolded stay so. */
function unfold(shown, unfolded) {
  for (const each of shown.querySelectorAll("details")) each.open ||= unfolded.has(placeOf(each));
}

const looks = (each) => [each.tagName, each.id, each.getAttribute("class"), each.getAttribute("href")].join(" ");

/** Renew what is around the element that a person is using, which alone stays as it is: of what contains it only what is told from all
 * others beside it, before and now, can stay. */
function around(shown, fresh) {
  const kept = [...shown.children].find((each) => each.contains(document.activeElement));
  const like = kept ? [...fresh.children].filter((each) => looks(each) === looks(kept)) : [];
  if (like.length !== 1 || [...shown.children].filter((each) => looks(each) === looks(kept)).length !== 1) return;
  for (const each of [...shown.children]) if (each !== kept) each.remove();
  const at = [...fresh.children].indexOf(like[0]);
  kept.before(...[...fresh.children].slice(0, at).map((each) => each.cloneNode(true)));
  kept.after(...[...fresh.children].slice(at + 1).map((each) => each.cloneNode(true)));
  if (!kept.matches("section")) around(kept, like[0]);  // a picture is whole
}

function renew(shown, element) {
  if (shown.contains(document.activeElement)) {
    const unfolded = unfoldedIn(shown);
    if (shown.matches("tr, #run-head")) around(shown, element);
    unfold(shown, unfolded);
    return hold(shown, element);
  }
  held.delete(shown);
  const chosen = shown.matches("tr, #list") ? [...shown.querySelectorAll("input:checked")].map((each) => each.value) : [];
  const copy = element.cloneNode(true);
  unfold(copy, unfoldedIn(shown));
  for (const each of chosen.length ? copy.querySelectorAll("input[type=checkbox]") : []) each.checked = chosen.includes(each.value);
  shown.replaceWith(copy);
}

/** Replace what has another version in `fresh`; whatever a person is using stays until then. The badge is there for wide and for narrow. */
function update(fresh) {
  const badge = fresh.querySelector("[data-badge]");
  for (const shown of badge ? document.querySelectorAll("[data-badge]") : []) {
    if (shown.dataset.v !== badge.dataset.v) shown.replaceWith(badge.cloneNode(true));
  }
  for (const element of fresh.querySelectorAll("[id][data-v]")) {
    const shown = document.getElementById(element.id);
    if (shown && shown.dataset.v !== element.dataset.v) renew(shown, element);
  }
}

/** Have a list hold the same elements as the fresh one. New ones come at its end and, while the mouse is on it, those that are gone keep their
 * places: no button moves away under a finger, and no other one comes there. */
function follow(list, fresh) {
  const wanted = new Set([...fresh.children].map((each) => each.id));
  for (const each of [...list.children]) {
    if (wanted.has(each.id) || each.contains(document.activeElement)) continue;
    if (!list.matches(":hover")) each.remove();
    else leave(each);
  }
  for (const each of [...fresh.children]) {
    if (!document.getElementById(each.id)) list.append(each.cloneNode(true));
  }
}

/** Show that something is not in the list any more. */
function leave(element) {
  element.classList.add("gone");
  for (const each of element.querySelectorAll("button, input, textarea")) each.disabled = true;
}

/** Asks for a part of the page every few seconds while it is looked at: src, every (seconds), whole (the id of a list to follow), chosen (whose
 * rows are those that match: one that does not come any more has ceased to), token (of the page: all who look get the same part, so its forms
 * come without one). */
class LiveRegion extends HTMLElement {
  connectedCallback() {
    this.seconds = Number(this.getAttribute("every")) || 5;
    this.wait = this.seconds;
    this.later();
    this.seen = () => { if (!document.hidden) this.ask(); };
    document.addEventListener("visibilitychange", this.seen);
  }

  disconnectedCallback() {
    clearTimeout(this.timer);
    document.removeEventListener("visibilitychange", this.seen);
  }

  later() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => (document.hidden ? this.later() : this.ask()), 1000 * this.wait);
  }

  async ask() {
    try {
      const response = await asked(this.getAttribute("src"));
      if (response.status === 401) return location.reload();
      if (isRefused(response)) {
        this.refused = true;
        lost(false);
        return outdated(true);
      }
      if (!response.ok) throw new Error(response.status);
      if (this.refused) outdated(false);
      this.refused = false;
      const fresh = parsed(await response.text());
      for (const field of fresh.querySelectorAll('input[name="token"]')) field.value = this.getAttribute("token");
      const whole = this.getAttribute("whole");
      if (whole) follow(document.getElementById(whole), fresh.getElementById(whole));
      update(fresh);
      for (const row of this.hasAttribute("chosen") ? this.querySelectorAll("tr[id]") : []) {
        if (!fresh.getElementById(row.id)) row.classList.add("gone");
      }
      lost(false);
      this.wait = this.seconds;
    } catch {
      lost(true);
      this.wait = Math.min(30, 2 * this.wait);
    }
    if (this.isConnected) this.later();
  }
}

/** Appends the entries of a run as they are committed: src (the stream), head (what to renew after them, once a second). A head that says so
 * (data-every, seconds) is renewed without entries, too: what happens to other runs writes none. A page that nobody sees follows nothing: browsers
 * keep six connections to a server, for all of its pages together. */
class RunStream extends HTMLElement {
  connectedCallback() {
    this.wait = 1;
    this.say();
    if (!this.getAttribute("src")) return;
    this.seen = () => {
      if (document.hidden) return this.rest();
      this.open();
      this.renew();
    };
    document.addEventListener("visibilitychange", this.seen);
    if (document.hidden) return;
    this.open();
    this.later();
  }

  /** Follow the stream, from behind the last entry that is shown. */
  open() {
    this.rest();
    const source = new URL(this.getAttribute("src"), location);
    if (this.last) source.searchParams.set("after", this.last);
    this.stream = new EventSource(source);
    this.stream.onopen = () => {
      this.wait = 1;
      this.isRefused = false;
      lost(false);
      behind(false);
    };
    this.stream.onerror = () => this.again();
    this.stream.addEventListener("entries", (event) => this.append(event));
    this.stream.addEventListener("end", () => { this.disconnectedCallback(); this.renew(); });
  }

  rest() {
    this.stream?.close();
    for (const each of [this.reopening, this.next]) clearTimeout(each);
  }

  /** A browser asks again by itself if the connection breaks, but not after an answer that is no stream. Why there is none, it does not tell: what
   * the server answers for the head does. */
  again() {
    if (this.stream.readyState === EventSource.CLOSED) {
      this.isRefused = true;
      clearTimeout(this.reopening);
      this.reopening = setTimeout(() => this.open(), 1000 * this.wait);
      this.wait = Math.min(30, 2 * this.wait);
    }
    this.renew();
  }

  /** Renew the head in so many seconds; without them it waits for the next entry. */
  later(seconds = Number(document.getElementById("run-head").dataset.every)) {
    clearTimeout(this.next);
    if (seconds && this.isConnected && !document.hidden) this.next = setTimeout(() => this.renew(), 1000 * seconds);
  }

  disconnectedCallback() {
    document.removeEventListener("visibilitychange", this.seen);
    this.rest();
    clearTimeout(this.timer);
  }

  append(event) {
    const entries = document.getElementById("entries");
    const atEnd = innerHeight + scrollY >= document.documentElement.scrollHeight - 80;
    for (const each of [...parsed(event.data).children]) {
      if (!document.getElementById(each.id)) entries.append(each);
    }
    this.last = event.lastEventId;
    document.getElementById("last-entry").textContent = Number(this.last).toLocaleString("en-US");
    if (atEnd && entries.children.length > 6) scrollTo({ top: document.documentElement.scrollHeight });
    this.timer ??= setTimeout(() => this.renew(), Math.max(250, (this.renewed ?? 0) + 1000 - Date.now()));
  }

  async renew() {
    clearTimeout(this.timer);
    this.timer = null;
    this.renewed = Date.now();
    const response = await asked(this.getAttribute("head")).catch(() => null);
    const text = await response?.text().catch(() => null);
    if (response?.status === 401) return location.reload();
    const isGone = Boolean(response && isRefused(response));
    const isThere = isGone || Boolean(response?.ok && text);
    lost(!isThere);
    outdated(isGone);
    behind(isThere && !isGone && Boolean(this.isRefused));
    if (isGone) return this.rest();
    if (!isThere) return this.later(5);
    update(parsed(text));
    this.say();
    this.later();
  }

  /** Say what becomes of the run to who listens to the page. */
  say() {
    const status = document.querySelector("#run-head .status")?.textContent.trim();
    if (this.status && status !== this.status) document.getElementById("heard").textContent = `Run ${status}`;
    this.status = status;
  }
}

/** Of the calls of an inbox one is where Tab comes: the last one that had the focus, else the first. Tab goes through what is in it and then
 * leaves the inbox; keys lead to the others. Calls that come or change meanwhile are as they have to be when they are there. */
const inbox = document.getElementById("inbox");
let tabbed = "";

function rove() {
  const calls = [...inbox.querySelectorAll("article.ask")];
  tabbed = calls.find((each) => each.contains(document.activeElement))?.id ?? tabbed;
  const stop = calls.find((each) => each.id === tabbed) ?? calls[0];
  for (const call of calls) {
    for (const each of [call, ...call.querySelectorAll("a, button, input, textarea, summary, [tabindex]")]) each.tabIndex = call === stop ? 0 : -1;
  }
}

if (inbox) {
  inbox.addEventListener("focusin", rove);
  new MutationObserver(rove).observe(inbox, { childList: true });
  rove();
}

/** In an inbox j and k go from call to call; a and d to its buttons, which Enter presses: no key alone decides anything. e opens its arguments;
 * Escape leaves a field. What an input method is told is none of it. */
document.addEventListener("keydown", (event) => {
  if (event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, textarea, select")) {
    if (event.key === "Escape") event.target.closest("article.ask")?.focus();
    return;
  }
  const calls = [...document.querySelectorAll("article.ask")];
  const at = calls.findIndex((each) => each.contains(document.activeElement));
  const call = calls[at] ?? calls.find((each) => each.tabIndex === 0) ?? calls[0];
  const button = (value) => call?.querySelector(`button[value="${value}"]`);
  const editor = () => {
    const edit = call?.querySelector("details.edit");
    if (edit) edit.open = true;
    return edit?.querySelector("textarea, a");
  };
  const steps = {
    j: () => calls[Math.min(at + 1, calls.length - 1)],
    k: () => calls[Math.max(at - 1, 0)],
    a: () => button("allow_once"),
    d: () => button("deny"),
    e: editor,
  };
  const target = steps[event.key]?.();
  if (!target) return;
  event.preventDefault();
  target.focus();
  target.scrollIntoView({ block: "nearest" });
});

/** Copies data-text, or with data-after the command around it that prints the entry after that one; by a button that says data-label, also over
 * plain HTTP, where browsers offer no clipboard. */
class CopyButton extends HTMLElement {
  get text() {
    return this.dataset.text ?? this.closest("[data-command]").dataset.command.replace("{after}", this.dataset.after);
  }

  connectedCallback() {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "plain";
    const label = this.dataset.label ?? "Copy";
    button.textContent = label;
    button.addEventListener("click", async () => {
      await this.copy();
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = label; }, 1500);
    });
    this.replaceChildren(button);
  }

  async copy() {
    if (navigator.clipboard) return navigator.clipboard.writeText(this.text);
    const field = document.createElement("textarea");
    field.value = this.text;
    field.className = "unseen";
    this.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
}

const UNITS = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
const words = new Intl.RelativeTimeFormat("en", { numeric: "always", style: "narrow" });
const exact = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });
const near = new Intl.DateTimeFormat("en-GB", { weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", timeZoneName: "short" });

/** Shows a time as distance from now, or with `elapsed` as a stopwatch, with `exact` as it is; in the visitor's zone, also as its title. */
class RelativeTime extends HTMLElement {
  static all = new Set();

  connectedCallback() {
    this.at = new Date(this.getAttribute("datetime"));
    this.title = exact.format(this.at);
    if (this.hasAttribute("exact")) return void (this.textContent = near.format(this.at));
    RelativeTime.all.add(this);
    this.show();
  }

  disconnectedCallback() { RelativeTime.all.delete(this); }

  show() {
    const seconds = Math.round((this.at - Date.now()) / 1000);
    const [unit, size] = UNITS.find(([, each]) => Math.abs(seconds) >= each) ?? UNITS.at(-1);
    const text = this.hasAttribute("elapsed")
      ? `${Math.trunc(Math.abs(seconds) / size)} ${unit === "minute" ? "m" : unit[0]}`
      : Math.abs(seconds) < 1 ? "now" : words.format(Math.trunc(seconds / size), unit);
    if (this.textContent !== text) this.textContent = text;
  }
}

setInterval(() => { if (!document.hidden) RelativeTime.all.forEach((each) => each.show()); }, 1000);

customElements.define("live-region", LiveRegion);
customElements.define("run-stream", RunStream);
customElements.define("copy-button", CopyButton);
customElements.define("relative-time", RelativeTime);

// A sign-in link has its code behind the #, which browsers send nowhere.
const form = document.getElementById("sign-in");
if (form && location.hash.length > 1) {
  form.elements.code.value = decodeURIComponent(location.hash.slice(1));
  history.replaceState(null, "", location.pathname + location.search);
  form.elements.key.required = false;
  form.submit();
}
