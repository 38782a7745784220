// The page: the list beside the current mention; keys, what is decided, and its files.
async function contentsOfPage() {
  const packed = byId("contents");
  const bytes = Uint8Array.from(atob(packed.textContent), (letter) => letter.charCodeAt(0));
  packed.remove();
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}

const today = () => {
  const now = new Date();
  return [now.getFullYear(), now.getMonth() + 1, now.getDate()].map((part) => String(part).padStart(2, "0")).join("-");
};

// Who decides. It is asked once on a computer, with the first decision; a button changes it.
class Reviewer {
  constructor() {
    this.place = "coder_jax reviewer";
    this.name = "";
    this.isAsked = false;
    try {
      const kept = localStorage.getItem(this.place);
      if (kept !== null) Object.assign(this, { name: kept, isAsked: true });
    } catch { /* asked on each page then */ }
    this.box = byId("who");
    this.box.addEventListener("cancel", () => { this.action = null; });  // Esc: nothing is decided
    this.box.addEventListener("close", () => { if (this.action) this.told(byId("name").value.trim()); });
    byId("reviewer").addEventListener("click", () => this.ask());
    this.draw();
  }

  get isAsking() { return this.box.open; }

  // Does something as soon as the name is known; it may be left empty.
  known(action) {
    if (this.isAsked) action();
    else this.ask(action);
  }

  ask(action = () => {}) {
    this.action = action;
    byId("name").value = this.name;
    this.box.showModal();
  }

  told(name) {
    Object.assign(this, { name, isAsked: true });
    try { localStorage.setItem(this.place, name); } catch { /* asked on each page then */ }
    this.draw();
    this.action();
  }

  draw() { byId("reviewer").textContent = this.name ? `Reviewer: ${this.name}` : "Reviewer"; }
}

class Review {
  constructor(contents, key) {
    this.terms = new Terms(contents.concepts);
    this.rows = contents.rows.map(([mention, status, ties, reason, candidates, cells, times, code, confidence, frequency]) => ({
      mention, code, confidence, frequency, status: contents.statuses[status], ties, reason, cells, times, similarity: candidates[0]?.[2] ?? null,
      candidates: candidates.map(([at, term, similarity]) => ({ concept: this.terms.ids[at], term, similarity })),
    }));
    this.hasCodes = contents.hasCodes;
    this.adding = false;  // whether the next concept that is accepted is one more
    this.selected = new Set();
    this.reviewer = new Reviewer();
    this.isWhole = contents.dictionary.concepts === this.terms.ids.length;
    this.decisions = new Decisions(contents.decided, key);
    this.list = new MentionList(this.rows, (row) => this.look(row), (row, how) => { this.choose(row, how); this.toList(); });
    this.filters = new Filters({ verdicts: [OPEN, ACCEPTED, REJECTED].map((one) => [one, 0]), statuses: this.statuses(contents.statuses) }, () => this.refilter(), () => this.reorder());
    this.isCounted = this.rows.some((row) => row.frequency !== null);
    this.filters.offer(this.isCounted, this.rows.some((row) => row.confidence !== null));
    this.search = new Search(this.terms, (concept) => this.byPointer(() => this.accept(concept)), () => { byId("found").replaceChildren(); this.toList(); });
    this.detail = new Detail(contents.columns, this.terms, {
      move: (steps) => this.move(steps),
      accept: (concept) => this.byPointer(() => this.accept(concept)),
      reject: () => this.byPointer(() => this.decide(REJECTED)),
      search: () => this.openSearch(),
      more: () => this.byPointer(() => this.addMore()),
      undo: () => this.byPointer(() => this.undo()),
      note: (text) => { this.decisions.note(this.current, text); this.drawState(); this.list.draw(); },
    });
    this.refresh();
    this.go(this.list.nextOpen(-1) ?? this.list.order[0] ?? -1);
  }

  statuses(names) {
    const counts = names.map((name) => [name, this.rows.filter((row) => row.status === name).length]);
    return counts.filter(([, count]) => count);
  }

  // What the list says of a row.
  look(row) {
    const { verdict, concepts, note } = this.decisions.get(row);
    const { candidates, reason, status } = this.rows[row];
    const found = status === "no answer" ? reason : this.terms.name(candidates[0]?.concept);
    return { verdict, note, isSelected: this.selected.has(row), answer: { open: found, accepted: this.named(concepts), rejected: "no concept fits" }[verdict] };
  }

  // Deciding

  named(concepts) { return concepts.map((concept) => this.terms.name(concept) || concept).join(" + "); }

  accept(concept) {
    if (!this.adding) { this.decide(ACCEPTED, [concept]); return; }
    const { concepts } = this.decisions.get(this.current);
    const after = concepts.includes(concept) ? concepts.filter((one) => one !== concept) : [...concepts, concept];
    this.decide(after.length ? ACCEPTED : OPEN, after);
  }

  // The concepts that are accepted until one goes to another mention are added to those that it has.
  addMore() {
    if (this.current < 0) return;
    this.adding = !this.adding;
    this.say(this.adding ? "One more concept: a number, or / to search. Again: take it off." : "A concept replaces the others.");
    this.draw();
  }

  // What is decided already is opened again; else the next open mention follows, but where concepts are added.
  decide(verdict, concepts = []) {
    if (this.current < 0) return;
    const row = this.current;
    this.reviewer.known(() => {
      const before = this.decisions.get(row);
      const after = { verdict, concepts };
      const isAgain = verdict === OPEN || isSame(before, after);
      const next = isAgain || this.adding ? row : this.list.nextOpen(row) ?? row;
      this.decisions.change([[row, this.stamped(isAgain ? NOTHING : after, before.note)]]);
      this.say(`${isAgain ? "Open again" : verdict === REJECTED ? "No concept fits" : `Accepted ${this.named(concepts)}`}: ${this.rows[row].mention}`);
      this.refresh();
      if (next === row) this.draw();
      else this.go(next);
    });
  }

  // A decision with its note, who makes it, and the day.
  stamped({ verdict, concepts }, note) {
    const isOpen = verdict === OPEN;
    return { verdict, concepts, note, reviewer: isOpen ? "" : this.reviewer.name, date: isOpen ? "" : today() };
  }

  // Many at once

  choose(row, how) {
    if (how === "one") this.select([row]);
    else if (how === "range") for (const one of this.list.between(this.current, row)) this.selected.add(one);
    this.go(row);
    this.tellMany();
  }

  // Those that are selected already are so no more.
  select(rows) {
    for (const row of rows) if (!this.selected.delete(row)) this.selected.add(row);
    this.list.draw();
    this.tellMany();
  }

  selectAll() {
    for (const row of this.list.order) this.selected.add(row);
    this.list.draw();
    this.tellMany();
  }

  selectNone() {
    this.selected.clear();
    this.list.draw();
    this.tellMany();
  }

  // The rows that “many at once” is about: the selected ones, or else all that are shown.
  many() { return this.selected.size ? [...this.selected] : this.list.order; }

  tellMany() {
    const what = this.selected.size ? "selected" : "all shown";
    byId("many-label").textContent = `Many at once: ${number(this.many().length)} ${this.selected.size ? "selected" : "shown"}`;
    byId("accept-many").textContent = `Accept ${what}`;
    byId("reject-many").textContent = `Map ${what} to none`;
    byId("open-many").hidden = byId("select-none").hidden = !this.selected.size;
    const exact = this.rows.filter(({ status }, row) => status === "exact" && this.decisions.get(row).verdict === OPEN).length;
    byId("accept-exact").textContent = `Accept all exact (${number(exact)})`;
    byId("accept-exact").disabled = !exact;
  }

  acceptExact() {
    this.decideMany(ACCEPTED, this.rows.flatMap(({ status }, row) => (status === "exact" ? [row] : [])));
  }

  // Open ones are decided, in one step; what was decided before stays. Where something is opened again, it is that.
  decideMany(verdict, rows = this.many()) {
    const known = verdict === OPEN ? (action) => action() : (action) => this.reviewer.known(action);
    known(() => {
      const [changes, counts] = [[], { decided: 0, answerless: 0 }];
      for (const row of rows) {
        const before = this.decisions.get(row);
        const { status, candidates } = this.rows[row];
        const isOpen = before.verdict === OPEN;
        const isAnswered = status !== "no answer" && candidates.length > 0;
        if (verdict !== OPEN && !isOpen) counts.decided += 1;
        else if (verdict === ACCEPTED && !isAnswered) counts.answerless += 1;
        else if (verdict !== OPEN || !isOpen) {
          changes.push([row, this.stamped({ verdict, concepts: verdict === ACCEPTED ? [candidates[0].concept] : [] }, before.note)]);
        }
      }
      if (changes.length) this.decisions.change(changes);
      this.selected.clear();
      const done = { open: "Opened again", accepted: "Accepted", rejected: "No concept fits" }[verdict];
      const said = [`${done}: ${number(changes.length)} mentions.`];
      if (counts.decided) said.push(`${number(counts.decided)} decided before stay.`);
      if (counts.answerless) said.push(`${number(counts.answerless)} without an answer stay open.`);
      this.say(said.join(" "));
      this.refresh();
      this.go(this.list.place.has(this.current) ? this.current : this.list.order[0] ?? this.current);
    });
  }

  undo() {
    const step = this.decisions.undo();
    if (!step) { this.say("There is nothing to undo."); return; }
    this.say(step.length === 1 ? `Undone: ${this.rows[step[0][0]].mention}` : `Undone: ${number(step.length)} decisions`);
    this.refresh();
    this.go(step[0][0]);
  }

  // Moving

  go(row) {
    this.current = row;
    this.adding = false;
    this.draw();
  }

  draw() {
    const row = this.current;
    this.list.show(row);
    const at = this.list.place.get(row);
    const where = at === undefined ? "not among the mentions that are shown" : `${number(at + 1)} of ${number(this.list.order.length)}`;
    if (row < 0) this.detail.empty();
    else this.detail.draw(this.rows[row], this.decisions.get(row), where, this.adding);
  }

  move(steps) { this.go(this.list.beside(this.current, steps) ?? this.current); }

  toList() { byId("list").focus({ preventScroll: true }); }

  // What a button was pressed for is drawn anew, and the button is gone: keys go on from the list.
  byPointer(action) {
    action();
    this.toList();
  }

  openSearch() {
    if (this.current >= 0) this.search.open(byId("found"), this.rows[this.current].mention);
  }

  openFilters() {
    byId("filters").open = true;
    byId("text").focus();
  }

  // Drawing

  say(text) {
    byId("said").textContent = text;
    clearTimeout(this.saidUntil);
    this.saidUntil = setTimeout(() => { byId("said").textContent = ""; }, 8000);
  }

  refresh() {
    this.drawState();
    this.refilterList();
  }

  refilterList() {
    this.list.filter(this.filters.read());
    this.filters.tell(this.list.order.length, this.rows.length);
    this.tellMany();
  }

  refilter() {
    this.refilterList();
    byId("list").scrollTop = 0;
    this.go(this.list.place.has(this.current) ? this.current : this.list.order[0] ?? this.current);
  }

  reorder() {
    this.refilterList();
    this.go(this.list.order[0] ?? this.current);
  }

  drawState() {
    const { decisions, rows } = this;
    const [accepted, rejected] = [ACCEPTED, REJECTED].map((verdict) => decisions.count(verdict));
    const decided = accepted + rejected;
    this.filters.count([[OPEN, rows.length - decided], [ACCEPTED, accepted], [REJECTED, rejected]]);
    byId("progress").max = Math.max(rows.length, 1);
    byId("progress").value = decided;
    const uses = (some) => some.reduce((sum, row) => sum + row.frequency, 0);
    const ofUses = this.isCounted ? `, ${percent(uses(rows.filter((_, row) => decisions.get(row).verdict !== OPEN)) / Math.max(uses(rows), 1))} of uses` : "";
    byId("decided").textContent = `${number(decided)} of ${number(rows.length)} decided${ofUses}`;
    byId("saved").textContent = decisions.unsaved.size ? `${number(decisions.unsaved.size)} not saved as CSV` : decided ? "saved as CSV" : "";
    byId("warning").hidden = !decisions.why;
    byId("warning").textContent = decisions.why && `This browser does not keep what you decide: ${decisions.why}. Save it as CSV before you close the page.`;
  }

  // Files

  save() {
    const decided = [...this.decisions.of].sort(([a], [b]) => a - b);
    const columns = COLUMNS.filter((name) => name !== "code" || this.hasCodes);
    const fields = ([row, { verdict, concepts, note, reviewer, date }]) => {
      const { mention, code } = this.rows[row];
      const of = { mention, code, concept: concepts.join(BETWEEN), preferred_name: concepts.map((one) => this.terms.name(one)).join(BETWEEN), decision: verdict, note, reviewer, date };
      return columns.map((name) => of[name]);
    };
    const address = URL.createObjectURL(new Blob([csvOf(columns, decided.map(fields))], { type: "text/csv" }));
    const name = document.querySelector("h1").textContent.replace(/\.(csv|tsv|txt|xlsx)$/i, "").replace(/[^\p{L}\p{N}.-]+/gu, " ").trim().replaceAll(" ", "_");
    make("a", "", { href: address, download: `${name}_decisions.csv` }).click();
    setTimeout(() => URL.revokeObjectURL(address), 60_000);
    this.decisions.saved();
    this.drawState();
    this.say(`Saved ${number(decided.length)} rows.`);
  }

  async load(file) {
    try { this.take(readDecisions(await file.text()), file.name); } catch (error) { this.say(`${file.name} was not loaded: ${error.message}.`); }
  }

  // Codes and texts are compared where both the list and the file have codes, else texts alone, as normalize does.
  take({ hasCodes, found }, name) {
    const keyOf = ({ mention, code }) => JSON.stringify(hasCodes && this.hasCodes ? [code, mention] : mention);
    const rowsOf = new Map();
    this.rows.forEach((row, at) => rowsOf.set(keyOf(row), [...(rowsOf.get(keyOf(row)) ?? []), at]));
    const [changes, others, unknown] = [new Map(), [], []];
    for (const [local, decision] of found) {
      const missing = this.isWhole ? decision.concepts.find((one) => !this.terms.place.has(one)) : undefined;
      const rows = rowsOf.get(keyOf(local));
      const other = rows && changes.get(rows[0]);
      if (other && !isSame(other, decision)) throw new Error(`it decides twice on “${local.mention}”, and this list has no codes to tell them apart`);
      if (!rows) others.push(local.mention);
      else if (missing !== undefined) unknown.push(missing);
      else for (const row of rows) changes.set(row, decision);
    }
    let [kept, replaced] = [0, 0];
    for (const [row, decision] of changes) {
      const mine = this.decisions.get(row);
      if (mine.verdict !== OPEN && decision.verdict === OPEN) { changes.delete(row); kept += 1; continue; }
      replaced += mine.verdict !== OPEN && !isSame(mine, decision);
      changes.set(row, { ...decision, note: decision.note || mine.note });
    }
    if (changes.size) this.decisions.change([...changes]);
    const said = [`Loaded ${number(changes.size)} rows of ${name}.`];
    if (replaced) said.push(`${number(replaced)} were decided otherwise before; u undoes this.`);
    if (kept) said.push(`${number(kept)} that it leaves open stay as they were decided.`);
    if (others.length) said.push(`${number(others.length)} are not of this list, such as “${others[0]}”.`);
    if (unknown.length) said.push(`${number(unknown.length)} name a concept that the dictionary does not have, such as ${unknown[0]}.`);
    this.say(said.join(" "));
    this.refresh();
    this.go(this.current);
  }

  // Another window of the same list decided something.
  reread() {
    this.decisions.reread();
    this.refresh();
    this.go(this.current);
  }
}

function listen(review) {
  const help = byId("help");
  const keys = {
    j: () => review.move(1), ArrowDown: () => review.move(1), k: () => review.move(-1), ArrowUp: () => review.move(-1),
    PageDown: () => review.move(10), PageUp: () => review.move(-10), Home: () => review.move(-Infinity), End: () => review.move(Infinity),
    o: () => review.go(review.list.nextOpen(review.current) ?? review.current),
    " ": () => { if (review.current >= 0) review.select([review.current]); },
    x: () => review.decide(REJECTED), a: () => review.addMore(), u: () => review.undo(), s: () => review.save(),
    "/": () => review.openSearch(), n: () => byId("note")?.focus(), f: () => review.openFilters(), "?": () => help.showModal(),
  };
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || help.open || review.reviewer.isAsking) return;
    const key = event.key.length > 1 ? event.key : event.key.toLowerCase();  // with the caps lock, too
    const candidate = /^[1-9]$/.test(event.key) && review.rows[review.current]?.candidates[Number(event.key) - 1];
    if (event.target.closest("input, textarea, select")) {
      if (event.key !== "Escape") return;
      review.toList();
    } else if (event.key === " " && event.target.closest("button, summary")) return;
    else if (candidate) review.accept(candidate.concept);
    else if (Object.hasOwn(keys, key)) keys[key]();
    else return;
    event.preventDefault();
  });
  const many = {
    "accept-many": () => review.decideMany(ACCEPTED), "reject-many": () => review.decideMany(REJECTED), "open-many": () => review.decideMany(OPEN),
    "select-all": () => review.selectAll(), "select-none": () => review.selectNone(), "accept-exact": () => review.acceptExact(),
  };
  for (const [id, action] of Object.entries(many)) byId(id).addEventListener("click", () => review.byPointer(action));
  byId("keys").addEventListener("click", () => help.showModal());
  byId("save").addEventListener("click", () => review.save());
  byId("load").addEventListener("click", () => byId("file").click());
  byId("file").addEventListener("change", async () => {
    if (byId("file").files.length) await review.load(byId("file").files[0]);
    byId("file").value = "";  // so that the same file can be loaded again
  });
  addEventListener("storage", ({ key, newValue }) => { if (key === review.decisions.place && newValue !== null) review.reread(); });
  addEventListener("beforeunload", (event) => { if (review.decisions.why && review.decisions.unsaved.size) event.preventDefault(); });
}

// What of the dictionary and of the list is not in the page.
function leftOut({ concepts, dictionary, blank }) {
  const held = concepts.ids.length;
  const names = concepts.terms.reduce((sum, terms) => sum + terms.length, held);
  const search = held < dictionary.concepts
    ? `the search finds ${number(held)} of the dictionary’s ${number(dictionary.concepts)} concepts: all candidates, and the first of the others by their preferred names`
    : `the search finds all ${number(held)} concepts of the dictionary, by ${number(names)} of their names`;
  const empty = blank && `${number(blank)} empty ${blank === 1 ? "mention of the list is" : "mentions of the list are"} not here`;
  return [!dictionary.hasAllTerms && search, empty].filter(Boolean).map((text) => ` · ${text}`).join("");
}

contentsOfPage().then((contents) => {
  byId("filters").open = matchMedia("(min-width: 60rem)").matches;
  byId("held").textContent = leftOut(contents);
  const review = new Review(contents, document.body.dataset.key);
  listen(review);
  review.toList();
}).catch((error) => {
  const isOld = typeof DecompressionStream === "undefined";
  byId("warning").textContent = isOld ? "This browser is too old for this page, which needs Chrome or Edge 86, Firefox 113, Safari 16.4, or a newer one." : `The list cannot be opened: ${error.message}.`;
  byId("warning").hidden = false;
  if (!isOld) throw error;
});
