// Searching the dictionary for another concept: a field and the concepts that it finds.
function aboutConcept(terms, at, term) {
  const name = terms.names[at];
  const what = make("span", "", { class: "what" }, make("b", name));
  if (term && term !== name) what.append(make("span", `by the term “${term}”`));
  const about = terms.about(at);
  if (about) what.append(make("span", about));
  return what;
}

class Search {
  // `accept` is called with the identifier of the concept that was chosen, `close` where none was.
  constructor(terms, accept, close) {
    Object.assign(this, { terms, accept, close, best: [], active: -1 });
    this.input = make("input", "", {
      type: "text", id: "query", role: "combobox", "aria-expanded": "false", "aria-controls": "matches", "aria-autocomplete": "list",
      "aria-label": "Search the dictionary", autocomplete: "off", autocapitalize: "none", spellcheck: "false",
      placeholder: `Search ${number(terms.count)} terms, or an identifier or code`,
    });
    this.matches = make("div", "", { id: "matches", role: "listbox", "aria-label": "Concepts" });
    this.said = make("p", "", { class: "unit", role: "status" });
    this.input.addEventListener("input", () => this.look());
    this.input.addEventListener("keydown", (event) => this.key(event));
    this.matches.addEventListener("pointerdown", (event) => event.preventDefault());  // the field stays in focus
    this.matches.addEventListener("click", (event) => {
      const option = event.target.closest("[data-at]");
      if (option) this.accept(terms.ids[option.dataset.at]);
    });
  }

  // The field in `place`, with a text that typing replaces.
  open(place, text) {
    place.replaceChildren(this.input, this.said, this.matches);
    this.input.value = text;
    this.look();
    this.input.focus();
    this.input.select();
  }

  look() {
    const { best, count } = this.terms.search(this.input.value);
    this.best = best;
    this.matches.replaceChildren(...best.map(([at, term], place) => make(
      "div", "", { role: "option", id: `match-${place}`, "data-at": at, "aria-selected": "false" },
      aboutConcept(this.terms, at, term), make("span", this.terms.ids[at], { class: "id" }))));
    this.matches.scrollTop = 0;
    const more = count > best.length ? `; the first ${best.length} are listed` : "";
    this.said.textContent = this.input.value.trim() ? `${number(count)} ${count === 1 ? "concept" : "concepts"}${more}` : "";
    this.input.setAttribute("aria-expanded", String(best.length > 0));
    this.choose(best.length ? 0 : -1);
  }

  choose(at) {
    this.active = at;
    [...this.matches.children].forEach((option, place) => {
      option.setAttribute("aria-selected", String(place === at));
      if (place === at) option.scrollIntoView({ block: "nearest" });
    });
    if (at < 0) this.input.removeAttribute("aria-activedescendant");
    else this.input.setAttribute("aria-activedescendant", `match-${at}`);
  }

  key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && this.best.length) this.choose((this.active + step + this.best.length) % this.best.length);
    else if (event.key === "Enter" && this.active >= 0) this.accept(this.terms.ids[this.best[this.active][0]]);
    else if (event.key === "Escape") this.close();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
