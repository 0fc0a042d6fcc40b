// Views of the list of runs that a person has given a name, and going on by itself through many runs. Pages are whole without it.

const KEPT = "owlclaw.views";

/** The views that this browser keeps: their names, and the query of each. */
function views() {
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

/** Links to the views, and a form that keeps the present one under a name. */
class SavedViews extends HTMLElement {
  connectedCallback() { this.show(); }

  keep(all) {
    try {
      localStorage.setItem(KEPT, JSON.stringify(all));
    } catch { /* a browser that keeps nothing */ }
    this.show();
  }

  show() {
    const here = filter(location.search);
    const all = views();
    this.replaceChildren();
    if (all.length) this.append(this.links(all, here));
    if (here && !all.some((each) => each.query === here)) this.append(this.form(all, here));
  }

  links(all, here) {
    const list = document.createElement("ul");
    list.setAttribute("aria-label", "Saved views");
    for (const each of all) {
      const item = document.createElement("li");
      const link = document.createElement("a");
      link.href = `/console/runs?${filter(each.query)}`;
      link.textContent = each.name;
      if (each.query === here) link.setAttribute("aria-current", "true");
      const forget = document.createElement("button");
      forget.type = "button";
      forget.className = "plain";
      forget.textContent = "×";
      forget.setAttribute("aria-label", `Forget the view ${each.name}`);
      forget.addEventListener("click", () => this.keep(views().filter((other) => other.name !== each.name)));
      item.append(link, forget);
      list.append(item);
    }
    return list;
  }

  form(all, here) {
    const form = document.createElement("form");
    const name = document.createElement("input");
    name.setAttribute("aria-label", "Name of this view");
    name.placeholder = "Name this view";
    name.maxLength = 40;
    name.required = true;
    const button = document.createElement("button");
    button.textContent = "Save view";
    form.append(name, button);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const called = name.value.trim();
      if (called) this.keep([...views().filter((each) => each.name !== called), { name: called, query: here }]);
    });
    return form;
  }
}

/** Sends its form by itself: the next step through many runs. */
class GoOn extends HTMLElement {
  connectedCallback() {
    this.timer = setTimeout(() => this.querySelector("form").requestSubmit(), 300);
  }

  disconnectedCallback() { clearTimeout(this.timer); }
}

customElements.define("saved-views", SavedViews);
customElements.define("go-on", GoOn);
