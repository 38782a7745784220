// The list of mentions: which of them pass the filters, in which order, and those that are in view as elements.
const ROW = 3.5;  // height of a row in rem, as in review.css
const BEYOND = 6;  // rows above and below the view that are there, too

// How sure an answer is: of a string of the dictionary quite sure, of others where it was measured.
const sureness = ({ status, confidence }) => (status === "exact" ? 1 : confidence);

class MentionList {
  // `look` gives of a row { verdict, answer, note, isSelected }; `choose` is called with the row that was clicked, and
  // with "one" or "range" where it is to be selected.
  constructor(rows, look, choose) {
    this.rows = rows;
    this.look = look;
    this.box = byId("list");
    this.inner = byId("rows");
    this.folded = rows.map((row) => fold(row.mention));
    this.order = rows.map((_, at) => at);
    this.place = new Map();
    this.current = -1;
    this.box.addEventListener("scroll", () => this.draw(), { passive: true });
    new ResizeObserver(() => this.show(this.current)).observe(this.box);
    this.inner.addEventListener("click", (event) => {
      const option = event.target.closest("[data-row]");
      const how = event.shiftKey ? "range" : event.ctrlKey || event.metaKey || event.target.closest(".mark") ? "one" : "";
      if (option) choose(Number(option.dataset.row), how);
    });
  }

  filter({ text, verdicts, statuses, least, most, leastSure, mostSure, order }) {
    const wanted = fold(text.trim());
    const isWithin = (value, from, to) => (from === null && to === null) || (value !== null && value >= (from ?? -1) && value <= (to ?? 1));
    const passes = (row, at) => (!wanted || this.folded[at].includes(wanted))
      && (!verdicts.size || verdicts.has(this.look(at).verdict))
      && (!statuses.size || statuses.has(row.status))
      && isWithin(row.similarity, least, most) && isWithin(sureness(row), leastSure, mostSure);
    this.order = [];
    this.rows.forEach((row, at) => { if (passes(row, at)) this.order.push(at); });
    const [by, sign] = {
      least: [(row) => row.similarity, 1], most: [(row) => row.similarity, -1], frequent: [(row) => row.frequency, -1],
      unsure: [sureness, 1], sure: [sureness, -1], list: [() => 0, 1],
    }[order];
    const key = this.rows.map((row) => by(row) ?? -2);
    this.order.sort((a, b) => sign * (key[a] - key[b]) || a - b);
    this.place = new Map(this.order.map((row, at) => [row, at]));
    this.draw();
  }

  // The rows from one to another, as they are shown.
  between(one, other) {
    const [first, last] = [one, other].map((row) => this.place.get(row) ?? this.place.get(other)).sort((a, b) => a - b);
    return this.order.slice(first, last + 1);
  }

  // The row that many places on; the first or last one at the ends.
  beside(row, steps) {
    const at = this.place.get(row);
    return this.order[Math.min(Math.max((at ?? -1) + steps, 0), this.order.length - 1)];
  }

  // The first open row after this one, from the beginning again at the end; undefined where there is none.
  nextOpen(row) {
    const at = this.place.get(row) ?? -1;
    const around = [...this.order.slice(at + 1), ...this.order.slice(0, Math.max(at, 0))];
    return around.find((one) => this.look(one).verdict === OPEN);
  }

  show(row) {
    this.current = row;
    const at = this.place.get(row);
    if (at !== undefined) {
      const height = this.height();
      const [top, view] = [at * height, this.box.clientHeight];
      // One more row stays in view on either side.
      if (top - height < this.box.scrollTop) this.box.scrollTop = top - height;
      else if (top + 2 * height > this.box.scrollTop + view) this.box.scrollTop = top + 2 * height - view;
    }
    this.draw();
  }

  height() {
    return ROW * parseFloat(getComputedStyle(document.documentElement).fontSize);
  }

  draw() {
    const height = this.height();
    this.inner.style.height = `${this.order.length * height}px`;
    const first = Math.max(Math.floor(this.box.scrollTop / height) - BEYOND, 0);
    const last = Math.ceil((this.box.scrollTop + this.box.clientHeight) / height) + BEYOND;
    this.inner.replaceChildren(...this.order.slice(first, last).map((row, step) => this.option(row, first + step, height)));
    if (this.inner.querySelector("[aria-selected=true]")) this.box.setAttribute("aria-activedescendant", `row-${this.current}`);
    else this.box.removeAttribute("aria-activedescendant");
  }

  option(row, at, height) {
    const { mention, code, similarity, status, confidence, frequency } = this.rows[row];
    const { verdict, answer, note, isSelected } = this.look(row);
    const option = make("div", "", {
      role: "option", id: `row-${row}`, "data-row": row, class: isSelected ? `${verdict} selected` : verdict,
      "aria-selected": String(row === this.current), "aria-checked": String(isSelected),
      "aria-setsize": this.order.length, "aria-posinset": at + 1,
    });
    option.style.top = `${at * height}px`;
    option.append(
      make("span", { open: "○", accepted: "✓", rejected: "✕" }[verdict], { class: "mark", role: "img", "aria-label": verdict }),
      make("span", mention, { class: "mention" }, ...(code ? [make("span", ` ${code}`, { class: "code" })] : [])),
      make("span", "", { class: "measures" },
        ...(frequency === null ? [] : [make("span", `${number(frequency)}×`, { class: "frequency" })]),
        make("span", similarity === null ? "" : similarity.toFixed(2), { class: "similarity" })),
      make("span", answer, { class: "answer" }),
      statusMark(status, confidence),
    );
    if (note) option.append(make("span", "✎", { class: "has-note", role: "img", "aria-label": "has a note" }));
    return option;
  }
}
