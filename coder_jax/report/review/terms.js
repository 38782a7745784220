// The dictionary: what is known of a concept, and the search for one by its terms, identifier or codes.
const MOST_FOUND = 30;
const ASCII = /^[ -~]*$/;  // of most texts, which have no marks to take off
const fold = (text) => (ASCII.test(text) ? text : text.normalize("NFD").replace(/\p{M}/gu, "")).toLowerCase();

class Terms {
  constructor({ ids, names, terms, codes, types, vocabularies, typeNames }) {
    Object.assign(this, { ids, names, terms, types, typeNames });
    this.codes = codes.map((flat) => {
      const pairs = [];
      for (let at = 0; at < flat.length; at += 2) pairs.push([vocabularies[flat[at]], flat[at + 1]]);
      return pairs;
    });
    this.place = new Map(ids.map((id, at) => [id, at]));
    this.count = names.length + terms.reduce((sum, held) => sum + held.length, 0);
  }

  name(id) {
    return this.names[this.place.get(id)] ?? "";
  }

  // What is said of a concept in one line: codes and types.
  about(at) {
    const byVocabulary = new Map();
    for (const [vocabulary, code] of this.codes[at]) byVocabulary.set(vocabulary, [...(byVocabulary.get(vocabulary) ?? []), code]);
    const codes = [...byVocabulary].map(([vocabulary, held]) => `${vocabulary} ${held.join(", ")}`);
    return [...codes, ...this.types[at].map((type) => this.typeNames[type])].filter(Boolean).join(" · ");
  }

  // Folding 150,000 terms takes a moment: once, at the first search.
  prepare() {
    if (this.folded) return;
    this.folded = [];
    this.owner = [];
    this.written = [];
    this.byCode = new Map();
    const add = (code, at) => {
      const held = this.byCode.get(fold(code));
      if (held) held.push(at);
      else this.byCode.set(fold(code), [at]);
    };
    this.ids.forEach((id, at) => {
      for (const term of [this.names[at], ...this.terms[at]]) {
        this.folded.push(fold(term));
        this.owner.push(at);
        this.written.push(term);
      }
      add(id, at);
      for (const [, code] of this.codes[at]) add(code, at);
    });
  }

  // { best: (concept, term), count }: concepts with a term that has all words. First a code that is meant, then
  // terms that are the text, begin with it, have words that begin so, and any other; short terms first.
  search(text) {
    this.prepare();
    const wanted = fold(text.trim());
    if (!wanted) return { best: [], count: 0 };
    const words = wanted.split(/\s+/);
    const isLetter = /[\p{L}\p{N}]/u;
    const found = new Map();  // concept -> [rank, length, term]
    const offer = (at, rank, term) => {
      const held = found.get(at);
      if (!held || rank < held[0] || (rank === held[0] && term.length < held[1])) found.set(at, [rank, term.length, term]);
    };
    for (const at of this.byCode.get(wanted) ?? []) offer(at, 0, this.names[at]);
    for (let place = 0; place < this.folded.length; place += 1) {
      const term = this.folded[place];
      let rank = 3;
      for (const word of words) {
        const at = term.indexOf(word);
        if (at < 0) { rank = -1; break; }
        if (at > 0 && isLetter.test(term[at - 1])) rank = 4;
      }
      if (rank < 0) continue;
      if (term.startsWith(wanted)) rank = term.length === wanted.length ? 1 : 2;
      offer(this.owner[place], rank, this.written[place]);
    }
    const all = [...found].sort(([a, [rankA, lengthA]], [b, [rankB, lengthB]]) => rankA - rankB || lengthA - lengthB || a - b);
    return { best: all.slice(0, MOST_FOUND).map(([at, [, , term]]) => [at, term]), count: all.length };
  }
}
