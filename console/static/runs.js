// Views of the list of runs that a person has given a name, and going on by itself through many runs. Pages are whole without it.

const KEPT = "owlclaw.views";

/** The views that this browser keeps: their names, and the query of each. */
function kept() {
  try {
    const found = JSON.parse(localStorage.getItem(KEPT) ?? "[]");
    return Array.isArray(found) ? found.filter((each) => typeof each?.name === "string" && typeof each?.query === "string") : [];
  } catch {
    return [];
  }
}

/** The filter in an address, without what only says where in the list one is. */
function filter(search) {
  const query = new URLSearchParams(search);
  for (const name of ["before", "upto", "did", "fragment"]) query.delete(name);
  for (const [name, value] of [...query]) if (!value) query.delete(name);
  query.sort();
  return query.toString();
}

function keep(all) {
  try {
    localStorage.setItem(KEPT, JSON.stringify(all));
  } catch { /* a browser that keeps nothing */ }
  show();
}

function made(tag, properties, ...content) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...content);
  return element;
}

function item(view, here) {
  const link = made("a", { href: `/console/runs?${filter(view.query)}` }, view.name);
  if (view.query === here) link.ariaCurrent = "true";
  const forget = made("button", { type: "button", className: "plain", ariaLabel: `Forget the view ${view.name}` }, "×");
  forget.addEventListener("click", () => keep(kept().filter((each) => each.name !== view.name)));
  return made("li", {}, link, forget);
}

function naming(here) {
  const name = made("input", { ariaLabel: "Name of this view", placeholder: "Name this view", maxLength: 40, required: true });
  const form = made("form", {}, name, made("button", {}, "Save view"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const called = name.value.trim();
    if (called) keep([...kept().filter((each) => each.name !== called), { name: called, query: here }]);
  });
  return form;
}

/** Links to the views, and a form that keeps the present one under a name. */
function show() {
  const here = filter(location.search);
  const all = kept();
  const parts = all.length ? [made("ul", { ariaLabel: "Saved views" }, ...all.map((each) => item(each, here)))] : [];
  if (here && !all.some((each) => each.query === here)) parts.push(naming(here));
  document.getElementById("views").replaceChildren(...parts);
}

if (document.getElementById("views")) show();

// The agents whose names begin with what is typed: of many, the page has the first ones alone.
const offers = document.querySelector("datalist[data-completes]");
const typed = document.querySelector(`input[list="${offers?.id}"]`);
if (offers && typed) {
  let timer;
  typed.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      const text = typed.value.trim();
      const asked = `/console/agents?fragment=rows&name=${encodeURIComponent(text)}`;
      const response = await fetch(asked, { headers: { accept: "application/problem+json" } }).catch(() => null);
      if (!response?.ok || text !== typed.value.trim()) return;
      const found = document.createElement("template");
      found.innerHTML = await response.text();
      offers.replaceChildren(...[...found.content.querySelectorAll("td.c-name")].map((each) => made("option", { value: each.textContent.trim() })));
    }, 150);
  });
}

// The next step through many runs, if this page was reached by the one before: whoever comes back to it, or loads it again, has stopped.
const further = document.querySelector("form[data-goes-on]");
if (further && performance.getEntriesByType("navigation")[0]?.type === "navigate") {
  const next = setTimeout(() => further.requestSubmit(), 300);
  addEventListener("pagehide", () => clearTimeout(next));
}
