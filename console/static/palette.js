// Ctrl-K (or ⌘K): a dialog that leads to pages, agents and runs by the keyboard alone. It offers links that pages of the console have, and what
// the lists of agents and runs find; so it offers nothing that its user may not see. Pages are whole without it.

const ROOT = "/console";
const PLACES_OF_IDS = { run: "runs", apr: "approvals", sch: "schedules" };
const MOST = 6;
const header = document.querySelector("header.side");
const places = [...(header?.querySelectorAll("nav > a, nav .wide a") ?? [])].map((each) => ({ title: each.firstChild.data.trim(), kind: "page", href: each.getAttribute("href") }));
const isNarrowed = header?.hasAttribute("data-narrowed");
const sees = (name) => places.some((each) => each.href === `${ROOT}/${name}`);

/** What a part of a page leads to: the links in it that match the selector. Throws if the server does not answer. */
async function links(path, selector, kind) {
  const response = await fetch(`${ROOT}/${path}`, { headers: { accept: "application/problem+json" } });
  if (!response.ok) throw new Error(response.status);
  const template = document.createElement("template");
  template.innerHTML = await response.text();
  return [...template.content.querySelectorAll(selector)].map((each) => ({ title: each.textContent.trim(), kind, href: each.getAttribute("href") }));
}

/** What a text is the name of: an id, or an agent with a key. */
function named(text) {
  const place = PLACES_OF_IDS[/^([a-z]{3})_[0-9a-z]{8,}$/.exec(text)?.[1]];
  if (place && sees(place)) return [{ title: text, kind: place.slice(0, -1), href: `${ROOT}/${place}/${text}` }];
  return /^[a-z0-9][\w-]*:\S+$/.test(text) && sees("agents") ? [{ title: text, kind: "agent", href: `${ROOT}/agents/${encodeURIComponent(text)}` }] : [];
}

class Palette {
  constructor() {
    this.dialog = document.createElement("dialog");
    this.dialog.className = "palette";
    this.dialog.setAttribute("aria-label", "Go to");
    this.dialog.innerHTML = `<input type="text" role="combobox" aria-expanded="true" aria-controls="palette-found" aria-autocomplete="list" autocomplete="off"
      spellcheck="false" aria-label="Page, agent, run, or text of a focus" placeholder="Page, agent, run, or text of a focus">
      <ul id="palette-found" role="listbox" aria-label="Where to"></ul><p class="sub" role="status"></p>`;
    [this.field, this.list, this.note] = this.dialog.children;
    this.field.addEventListener("input", () => this.show());
    this.field.addEventListener("keydown", (event) => this.act(event));
    this.list.addEventListener("click", (event) => this.go(event.target.closest("[role=option]")));
    this.dialog.addEventListener("click", (event) => { if (event.target === this.dialog) this.dialog.close(); });
    this.dialog.addEventListener("close", () => this.dialog.remove());
  }

  open() {
    if (this.dialog.open) return;
    document.body.append(this.dialog);
    this.dialog.showModal();
    this.field.value = "";
    this.agents = sees("agents") ? links("agents?fragment=rows", "td.c-name a.agent", "agent") : Promise.resolve([]);
    this.agents.catch(() => {});
    this.show();
  }

  /** Offer what the text finds: at once what this page knows, and after a moment what the server does. */
  show() {
    const text = this.field.value.trim();
    const matches = (all) => all.filter((each) => each.title.toLowerCase().includes(text.toLowerCase())).slice(0, text ? MOST : all.length);
    const first = [...named(text), ...matches(places)];
    const search = text && sees("runs") && !isNarrowed ? [{ title: text, kind: "search the runs", href: `${ROOT}/runs?text=${encodeURIComponent(text)}` }] : [];
    this.moved = false;
    this.note.textContent = "";
    this.offer([...first, ...search]);
    clearTimeout(this.timer);
    if (text) this.timer = setTimeout(async () => this.offer([...first, ...await this.found(text, matches), ...search], text), 150);
  }

  /** What the lists of agents and runs find. */
  async found(text, matches) {
    try {
      const runs = sees("runs") ? await this.runs(text) : [];
      const begins = sees("agents") ? await links(`agents?fragment=rows&name=${encodeURIComponent(text)}`, "td.c-name a.agent", "agent") : [];
      return [...begins.slice(0, MOST), ...matches(await this.agents), ...runs.slice(0, MOST)];
    } catch {
      this.note.textContent = "The server does not answer: agents and runs are not found now.";
      return [];
    }
  }

  /** Runs whose focus has the text: of all agents, or of the first ones if the key is for some alone, which has no list of all runs. */
  async runs(text) {
    const within = isNarrowed ? (await this.agents).slice(0, MOST).map(({ title }) => `&agent=${encodeURIComponent(title)}`) : [""];
    const found = await Promise.all(within.map((agent) => links(`runs?fragment=rows&text=${encodeURIComponent(text)}${agent}`, "a.row", "run")));
    return found.flat();
  }

  /** Show where one can go, if the text is still that for which it was found. */
  offer(all, text = this.field.value.trim()) {
    if (text !== this.field.value.trim()) return;
    const chosen = this.moved && this.chosen?.dataset.href;
    const seen = new Set();
    this.list.replaceChildren(...all.filter(({ href }) => !seen.has(href) && seen.add(href)).map(({ title, kind, href }, at) => {
      const option = document.createElement("li");
      option.id = `palette-${at}`;
      option.setAttribute("role", "option");
      option.dataset.href = href;
      const name = document.createElement("bdi");
      name.textContent = title;
      const what = document.createElement("span");
      what.textContent = kind;
      option.append(name, what);
      return option;
    }));
    const options = [...this.list.children];
    this.choose(options.find((each) => each.dataset.href === chosen) ?? options[0]);
  }

  choose(option) {
    for (const each of this.list.children) each.setAttribute("aria-selected", String(each === option));
    this.chosen = option;
    if (option) this.field.setAttribute("aria-activedescendant", option.id);
    else this.field.removeAttribute("aria-activedescendant");
    option?.scrollIntoView({ block: "nearest" });
  }

  act(event) {
    if (event.isComposing || !["ArrowDown", "ArrowUp", "Enter"].includes(event.key)) return;
    event.preventDefault();
    if (event.key === "Enter") return void this.go(this.chosen);
    const next = event.key === "ArrowDown" ? this.chosen?.nextElementSibling : this.chosen?.previousElementSibling;
    this.moved = true;
    if (next) this.choose(next);
  }

  go(option) {
    if (option) location.assign(option.dataset.href);
  }
}

if (header) {
  const palette = new Palette();
  const button = document.createElement("button");
  button.type = "button";
  button.className = "palette-opens";
  button.innerHTML = `Go to… <kbd>${/Mac|iP/.test(navigator.platform) ? "⌘" : "Ctrl"} K</kbd>`;
  button.addEventListener("click", () => palette.open());
  header.querySelector(".brand").after(button);
  document.addEventListener("keydown", (event) => {
    if (event.isComposing || event.key?.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey) return;
    event.preventDefault();
    palette.open();
  });
}
