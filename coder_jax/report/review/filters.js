// Which mentions are to be seen: by text, decision, status and similarity; and in which order.
class Filters {
  // `values` of "verdicts" and "statuses": those to choose from, with a number on each; none pressed means all.
  constructor(values, change, reorder) {
    this.chosen = {};
    this.numbers = new Map();
    for (const [id, counts] of Object.entries(values)) {
      const held = this.chosen[id] = new Set();
      byId(id).append(...[...counts].map(([value, count]) => this.chip(held, value, count, change)));
    }
    for (const id of ["text", "least", "most"]) byId(id).addEventListener("input", change);
    byId("order").addEventListener("change", reorder);
    byId("clear").addEventListener("click", () => { this.clear(); change(); });
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
    return { text: byId("text").value, ...this.chosen, least: bound("least"), most: bound("most"), order: byId("order").value };
  }

  clear() {
    for (const id of ["text", "least", "most"]) byId(id).value = "";
    for (const held of Object.values(this.chosen)) held.clear();
    for (const chip of document.querySelectorAll(".chips button")) chip.setAttribute("aria-pressed", "false");
  }

  // What is said of the list that passes.
  tell(shown, all) {
    const { text, verdicts, statuses, least, most } = this.read();
    const isOn = text || verdicts.size || statuses.size || least !== null || most !== null;
    const some = `${number(shown)} of ${number(all)}`;
    byId("count").textContent = isOn ? `${some} mentions` : `${number(all)} mentions`;
    byId("filtered").textContent = isOn ? ` · ${some} shown` : "";
    byId("clear").hidden = !isOn;
    byId("none").hidden = shown > 0 || !isOn;
  }
}
