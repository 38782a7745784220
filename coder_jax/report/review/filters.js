// Which mentions are to be seen: by text, decision, status, similarity and confidence; and in which order.
const BOUNDS = ["least", "most", "least-sure", "most-sure"];

class Filters {
  // `values` of "verdicts" and "statuses": those to choose from, with a number on each; none pressed means all.
  constructor(values, change, reorder) {
    this.chosen = {};
    this.numbers = new Map();
    for (const [id, counts] of Object.entries(values)) {
      const held = this.chosen[id] = new Set();
      byId(id).append(...[...counts].map(([value, count]) => this.chip(held, value, count, change)));
    }
    for (const id of ["text", ...BOUNDS]) byId(id).addEventListener("input", change);
    byId("order").addEventListener("change", reorder);
    byId("clear").addEventListener("click", () => { this.clear(); change(); });
  }

  // Shows what only some lists have: how often a term is used, and measured confidence.
  offer(isCounted, isMeasured) {
    const orders = [...(isCounted ? ["frequent"] : []), ...(isMeasured ? ["unsure", "sure"] : [])];
    for (const option of byId("order").options) if (orders.includes(option.value)) option.hidden = option.disabled = false;
    byId("order").value = isCounted ? "frequent" : "list";
    byId("sure").hidden = !isMeasured;
  }

  chip(held, value, count, change) {
    const place = make("span", number(count));
    this.numbers.set(value, place);
    const chip = make("button", `${value} `, { type: "button", "aria-pressed": "false", "data-value": value }, place);
    chip.addEventListener("click", () => {
      if (!held.delete(value)) held.add(value);
      chip.setAttribute("aria-pressed", String(held.has(value)));
      change();
    });
    return chip;
  }

  count(counts) {
    for (const [value, count] of counts) this.numbers.get(value).textContent = number(count);
  }

  read() {
    const bound = (id) => (Number.isNaN(byId(id).valueAsNumber) ? null : byId(id).valueAsNumber);
    const [least, most, leastSure, mostSure] = BOUNDS.map(bound);
    return { text: byId("text").value, ...this.chosen, least, most, leastSure, mostSure, order: byId("order").value };
  }

  clear() {
    for (const id of ["text", ...BOUNDS]) byId(id).value = "";
    for (const held of Object.values(this.chosen)) held.clear();
    for (const chip of document.querySelectorAll(".chips button")) chip.setAttribute("aria-pressed", "false");
  }

  // What is said of the list that passes.
  tell(shown, all) {
    const { text, verdicts, statuses, order, ...bounds } = this.read();
    const isOn = text || verdicts.size || statuses.size || Object.values(bounds).some((one) => one !== null);
    const some = `${number(shown)} of ${number(all)}`;
    byId("count").textContent = isOn ? `${some} mentions` : `${number(all)} mentions`;
    byId("filtered").textContent = isOn ? ` · ${some} shown` : "";
    byId("clear").hidden = !isOn;
    byId("none").hidden = shown > 0 || !isOn;
  }
}
