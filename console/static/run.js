// A run's page: a part of its picture is looked at by drawing over it, and the picture shows which entries are in sight.
// The page is whole without this file.

/** The entries that are in sight, below the tabs that stay above them: the numbers of the first and the last one. */
function inSight() {
  const top = document.querySelector(".tabs").getBoundingClientRect().bottom;
  const seen = [...document.querySelectorAll("#entries > .entry")].filter((each) => {
    const place = each.getBoundingClientRect();
    return place.bottom > top && place.top < innerHeight;
  });
  const number = (each) => Number(each?.id.slice(1));
  return [number(seen[0]), number(seen.at(-1))];
}

/** The picture of a run: `address` without a zoom; `begin` and `end`, of 1,000, of the part that is shown. Tab comes to one of its bars, the one
 * that had the focus last or the first, and leaves the picture from there; arrows, Home and End go from bar to bar. */
class RunPicture extends HTMLElement {
  static tabbed = "";

  connectedCallback() {
    this.svg = this.querySelector("svg");
    this.rove();
    this.addEventListener("focusin", (event) => this.rove(event.target.closest("a"))); // an <svg> with such a listener is where Tab comes, too
    this.addEventListener("keydown", (event) => this.step(event));
    this.follow = () => requestAnimationFrame(() => this.mark());
    addEventListener("scroll", this.follow, { passive: true });
    this.leave = (event) => { if (event.type === "pointercancel" || !this.svg.contains(event.target)) this.from = undefined; };
    for (const type of ["pointerup", "pointercancel"]) addEventListener(type, this.leave);
    this.svg.addEventListener("pointerdown", (event) => { this.from = event.button === 0 ? event.clientX : undefined; });
    this.svg.addEventListener("pointerup", (event) => this.look(event.clientX));
    this.svg.addEventListener("click", (event) => { if (this.drawn) event.preventDefault(); this.drawn = false; }, true);
    this.svg.addEventListener("dragstart", (event) => event.preventDefault());
    this.mark();
  }

  disconnectedCallback() {
    removeEventListener("scroll", this.follow);
    for (const type of ["pointerup", "pointercancel"]) removeEventListener(type, this.leave);
  }

  rove(bar) {
    const bars = [...this.svg.querySelectorAll("a")];
    if (bar) RunPicture.tabbed = bar.getAttribute("href");
    const stop = bar ?? bars.find((each) => each.getAttribute("href") === RunPicture.tabbed) ?? bars[0];
    for (const each of bars) each.setAttribute("tabindex", each === stop ? 0 : -1);
  }

  step(event) {
    if (event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return;
    const bars = [...this.svg.querySelectorAll("a")];
    const at = bars.indexOf(event.target.closest("a"));
    const steps = { ArrowLeft: at - 1, ArrowUp: at - 1, ArrowRight: at + 1, ArrowDown: at + 1, Home: 0, End: bars.length - 1 };
    if (at < 0 || !(event.key in steps)) return;
    event.preventDefault();
    bars[steps[event.key]]?.focus();
  }

  /** Go to the part of the picture that was drawn over; a click stays a click. */
  look(to) {
    const box = this.svg.getBoundingClientRect();
    const [begin, end] = ["begin", "end"].map((name) => Number(this.getAttribute(name)));
    const place = (x) => Math.round(begin + (end - begin) * Math.min(1, Math.max(0, (x - box.left) / box.width)));
    const [left, right] = [place(Math.min(this.from, to)), place(Math.max(this.from, to))];
    this.drawn = Math.abs(to - this.from) > 6;
    this.from = undefined;
    if (!this.drawn || !(right - left >= 10)) return;
    const address = new URL(this.getAttribute("address"), location.href);
    address.searchParams.set("zoom", `${left}-${right}`);
    location.assign(address);
  }

  mark() {
    const [first, last] = inSight();
    for (const each of this.svg.querySelectorAll("a")) {
      const seq = Number(each.getAttribute("href").slice(2));
      each.classList.toggle("in-sight", seq >= first && seq <= last);
    }
  }
}

customElements.define("run-picture", RunPicture);

// Conversation and journal are the same entries: going from one to the other stays at the one that is in sight.
for (const tab of document.querySelectorAll(".tabs nav a")) {
  tab.addEventListener("click", () => {
    const [first] = inSight();
    if (first) tab.hash = `e${first}`;
  });
}
