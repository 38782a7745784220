// The current mention: what the list says of it, what is decided on it, and its candidates.
const percent = (share) => `${Math.floor(100 * share + 1e-9)} %`;  // never more than it is
const statusMark = (status, confidence = null) => make(
  "span", confidence === null ? status : `${status} ${percent(confidence)}`, { class: `status ${status.replaceAll(" ", "-")}` });

class Detail {
  // `does` has what its buttons do: move(steps), accept(concept), reject(), search(), more(), undo(), note(text).
  constructor(columns, terms, does) {
    Object.assign(this, { columns, terms, does, box: byId("detail") });
  }

  // `where` says which of the mentions it is, `adding` whether a further concept is to be chosen.
  draw(row, decision, where, adding) {
    const { does } = this;
    const top = make("div", "", { class: "top" }, make("span", where, { class: "unit" }),
      this.button("Previous", "k", () => does.move(-1)), this.button("Next", "j", () => does.move(1)));
    const actions = make("div", "", { class: "actions" },
      this.button("No concept fits", "x", does.reject, { id: "reject", "aria-pressed": String(decision.verdict === REJECTED) }),
      this.button("Search", "/", does.search, { id: "search" }),
      this.button("One more concept", "a", does.more, { id: "more", "aria-pressed": String(adding) }), this.button("Undo", "u", does.undo));
    const note = make("textarea", "", { id: "note", rows: "2" });
    note.value = decision.note;
    note.addEventListener("input", () => does.note(note.value));
    this.box.replaceChildren(
      top,
      make("h2", row.mention, {}, ...(row.code ? [make("span", row.code, { class: "code" })] : [])),
      make("p", "", { class: "mapped" }, statusMark(row.status), ` ${this.why(row)}`),
      ...this.cells(row),
      make("div", "", { class: "deciding" }, this.verdict(decision), actions),
      make("div", "", { id: "found" }),
      make("div", "", { class: "candidates", role: "group", "aria-label": "Candidates" }, ...this.cards(row, decision)),
      make("label", "Note ", { for: "note" }, make("kbd", "n")),
      note,
    );
    this.box.scrollTop = 0;
  }

  empty() {
    this.box.replaceChildren(make("p", "The list has no mentions.", { class: "unit" }));
  }

  button(text, key, action, more = {}) {
    const one = make("button", `${text} `, { type: "button", ...more }, make("kbd", key));
    one.addEventListener("click", action);
    return one;
  }

  why({ status, ties, reason, times, confidence, frequency }) {
    const found = { exact: "a term of the dictionary", misspelt: "a term of the dictionary, one letter off", near: "the nearest term", doubtful: "the nearest term, more likely wrong than right", learnt: "a name learnt from a decision", decided: "decided before" }[status];
    const rivals = ties > 0 && `${number(ties)} other ${ties === 1 ? "concept is" : "concepts are"} as good`;
    const sure = confidence !== null && `confidence ${percent(confidence)}`;
    const used = frequency !== null && `used ${number(frequency)} times`;
    return [found, sure, reason, rivals, times > 1 && `${number(times)} rows of the list`, used].filter(Boolean).join(" · ");
  }

  cells({ cells }) {
    const held = this.columns.map((name, column) => [name, cells[column]]).filter(([, value]) => value);
    const list = make("dl", "", { class: "cells" }, ...held.map(([name, value]) => make("div", "", {}, make("dt", name), make("dd", value))));
    return held.length ? [list] : [];
  }

  verdict({ verdict, concepts, reviewer, date }) {
    const named = concepts.map((concept) => [this.terms.name(concept), concept].filter(Boolean).join(" · "));
    const what = { open: "", accepted: named.join(" + "), rejected: "no concept fits" }[verdict];
    const name = verdict[0].toUpperCase() + verdict.slice(1);
    const by = verdict === OPEN ? "" : [reviewer, date].filter(Boolean).join(", ");
    return make("p", "", { class: `verdict ${verdict}` }, make("b", name), ` ${what}`, ...(by ? [make("span", by, { class: "by unit" })] : []));
  }

  cards({ candidates }, { concepts }) {
    const cards = candidates.map((one, rank) => this.card(one, rank < 9 ? String(rank + 1) : "", concepts.includes(one.concept)));
    const others = concepts.filter((concept) => !candidates.some((one) => one.concept === concept));
    cards.unshift(...others.map((concept) => this.card({ concept, term: "", similarity: null }, "✓", true)));
    return cards.length ? cards : [make("p", "No candidates were looked up.", { class: "unit" })];
  }

  card({ concept, term, similarity }, label, isAccepted) {
    const at = this.terms.place.get(concept);
    const what = at === undefined ? make("span", "", { class: "what" }, make("b", concept)) : aboutConcept(this.terms, at, term);
    const measure = make("span", "", { class: "measure" }, make("span", concept, { class: "id" }));
    if (similarity !== null) {
      const bar = make("span", "", { class: "bar", "aria-hidden": "true" }, make("span", "", { style: `width:${Math.max(0, 100 * similarity)}%` }));
      measure.append(make("span", similarity.toFixed(3), { class: "similarity" }), bar);
    }
    const card = make("button", "", { type: "button", class: "candidate", "aria-pressed": String(isAccepted) }, make("kbd", label), what, measure);
    card.addEventListener("click", () => this.does.accept(concept));
    return card;
  }
}
