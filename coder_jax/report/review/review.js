// The page: the list beside the current mention; keys, what is decided, and its files.
async function contentsOfPage() {
  const packed = byId("contents");
  const bytes = Uint8Array.from(atob(packed.textContent), (letter) => letter.charCodeAt(0));
  packed.remove();
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}

class Review {
  constructor(contents, key) {
    this.terms = new Terms(contents.concepts);
    this.rows = contents.rows.map(([mention, status, ties, reason, candidates, cells, times]) => ({
      mention, status: contents.statuses[status], ties, reason, cells, times, similarity: candidates[0]?.[2] ?? null,
      candidates: candidates.map(([at, term, similarity]) => ({ concept: this.terms.ids[at], term, similarity })),
    }));
    this.isWhole = contents.dictionary.concepts === this.terms.ids.length;
    this.decisions = new Decisions(contents.decided, key);
    this.list = new MentionList(this.rows, (row) => this.look(row), (row) => { this.go(row); this.toList(); });
    this.filters = new Filters({ verdicts: [OPEN, ACCEPTED, REJECTED].map((one) => [one, 0]), statuses: this.statuses(contents.statuses) }, () => this.refilter(), () => this.reorder());
    this.search = new Search(this.terms, (concept) => this.byPointer(() => this.accept(concept)), () => { byId("found").replaceChildren(); this.toList(); });
    this.detail = new Detail(contents.columns, this.terms, {
      move: (steps) => this.move(steps),
      accept: (concept) => this.byPointer(() => this.accept(concept)),
      reject: () => this.byPointer(() => this.decide(REJECTED)),
      search: () => this.openSearch(),
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
    const { verdict, concept, note } = this.decisions.get(row);
    const { candidates, reason, status } = this.rows[row];
    const found = status === "no answer" ? reason : this.terms.name(candidates[0]?.concept);
    return { verdict, note, answer: { open: found, accepted: this.terms.name(concept) || concept, rejected: "no concept fits" }[verdict] };
  }

  // Deciding

  accept(concept) { this.decide(ACCEPTED, concept); }

  // What is decided already is opened again; else the next open mention follows.
  decide(verdict, concept = null) {
    if (this.current < 0) return;
    const before = this.decisions.get(this.current);
    const isAgain = before.verdict === verdict && before.concept === concept;
    const after = isAgain ? { verdict: OPEN, concept: null } : { verdict, concept };
    const next = isAgain ? this.current : this.list.nextOpen(this.current) ?? this.current;
    const { mention } = this.rows[this.current];
    this.decisions.change([[this.current, { ...after, note: before.note }]]);
    this.say(`${isAgain ? "Open again" : verdict === REJECTED ? "No concept fits" : `Accepted ${this.terms.name(concept) || concept}`}: ${mention}`);
    this.refresh();
    this.go(next);
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
    this.list.show(row);
    const at = this.list.place.get(row);
    const where = at === undefined ? "not among the mentions that are shown" : `${number(at + 1)} of ${number(this.list.order.length)}`;
    if (row < 0) this.detail.empty();
    else this.detail.draw(this.rows[row], this.decisions.get(row), where);
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
    byId("decided").textContent = `${number(decided)} of ${number(rows.length)} decided`;
    byId("saved").textContent = decisions.unsaved.size ? `${number(decisions.unsaved.size)} not saved as CSV` : decided ? "saved as CSV" : "";
    byId("warning").hidden = !decisions.why;
    byId("warning").textContent = decisions.why && `This browser does not keep what you decide: ${decisions.why}. Save it as CSV before you close the page.`;
  }

  // Files

  save() {
    const decided = [...this.decisions.of].sort(([a], [b]) => a - b);
    const fields = ([row, { verdict, concept, note }]) => [this.rows[row].mention, concept ?? "", this.terms.name(concept), verdict, note];
    const address = URL.createObjectURL(new Blob([csvOf(decided.map(fields))], { type: "text/csv" }));
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

  take(found, name) {
    const rowOf = new Map(this.rows.map((row, at) => [row.mention, at]));
    const [changes, others, unknown] = [[], [], []];
    for (const [mention, decision] of found) {
      const row = rowOf.get(mention);
      if (row === undefined) others.push(mention);
      else if (this.isWhole && decision.concept !== null && !this.terms.place.has(decision.concept)) unknown.push(decision.concept);
      else changes.push([row, decision]);
    }
    if (changes.length) this.decisions.change(changes);
    const said = [`Loaded ${number(changes.length)} rows of ${name}.`];
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
    x: () => review.decide(REJECTED), u: () => review.undo(), s: () => review.save(),
    "/": () => review.openSearch(), n: () => byId("note")?.focus(), f: () => review.openFilters(), "?": () => help.showModal(),
  };
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || help.open) return;
    const key = event.key.length > 1 ? event.key : event.key.toLowerCase();  // with the caps lock, too
    const candidate = /^[1-9]$/.test(event.key) && review.rows[review.current]?.candidates[Number(event.key) - 1];
    if (event.target.closest("input, textarea, select")) {
      if (event.key !== "Escape") return;
      review.toList();
    } else if (candidate) review.accept(candidate.concept);
    else if (Object.hasOwn(keys, key)) keys[key]();
    else return;
    event.preventDefault();
  });
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
