"use strict";
// Text reaches the page through textContent alone, so that no term is ever read as HTML.
const byId = (id) => document.getElementById(id);
const data = (id) => JSON.parse(byId(id).textContent);
const make = (name, text, attributes = {}) => {
  const element = document.createElement(name);
  element.textContent = text;
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
};

const tip = byId("tip");
function showTip(event, text) {
  tip.textContent = text;
  tip.hidden = false;
  const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
  const below = event.clientY + 16;
  const fits = below + tip.offsetHeight < innerHeight;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${fits ? below : event.clientY - tip.offsetHeight - 10}px`;
}
const hideTip = () => { tip.hidden = true; };
addEventListener("scroll", hideTip, { passive: true });

// Maps: a point names its term, and its group lights up in the maps of all encoders.
const maps = data("map-data");
for (const section of document.querySelectorAll("[data-maps]")) {
  const map = maps[section.dataset.maps];
  const buttons = [...section.querySelectorAll("[data-group]")];
  const points = [...section.querySelectorAll("[data-i]")];
  let kept = null;
  const light = (group) => {
    section.classList.toggle("chosen", group !== null);
    for (const point of points) point.classList.toggle("on", map.of[point.dataset.i] === group);
  };
  section.addEventListener("pointerover", (event) => {
    const place = event.target.dataset.i;
    if (place === undefined) return;
    light(map.of[place]);
    showTip(event, `${map.terms[place]}\n${map.groups[map.of[place]]}`);
  });
  section.addEventListener("pointerout", (event) => {
    if (event.target.dataset.i === undefined) return;
    light(kept);
    hideTip();
  });
  for (const button of buttons) {
    button.addEventListener("click", () => {
      const group = Number(button.dataset.group);
      kept = kept === group ? null : group;
      for (const other of buttons) other.setAttribute("aria-pressed", String(Number(other.dataset.group) === kept));
      light(kept);
    });
  }
}

// The heat map: a square names its two relations and their cosine.
const heat = data("heat-data");
if (heat) {
  const picture = byId("heat");
  const squares = [...picture.querySelectorAll(".cells > *")];
  const mark = (row, column) => {
    for (const name of picture.querySelectorAll("[data-row], [data-column]")) {
      name.classList.toggle("on", name.dataset.row === String(row) || name.dataset.column === String(column));
    }
  };
  const point = (event) => {
    const place = squares.indexOf(event.target);
    if (place < 0) return;
    const [row, column] = [Math.floor(place / heat.labels.length), place % heat.labels.length];
    mark(row, column);
    showTip(event, `${heat.labels[row]}\n${heat.labels[column]}\ncosine ${heat.values[row][column]}`);
  };
  picture.addEventListener("pointerover", point);
  picture.addEventListener("pointerdown", point);
  picture.addEventListener("pointerout", () => { mark(-1, -1); hideTip(); });
}

// The explorer. The address behind # keeps the term: links, the back button and bookmarks just work.
const terms = data("explorer-data");
if (terms) explore(terms);

// Numbers that `neighbours.packed` put into base64: the bytes of an array of JavaScript's.
function unpacked({ array, base64 }) {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const kinds = { Uint16Array, Uint32Array, Int16Array };
  return new kinds[array](bytes.buffer);
}

function explore(all) {
  const neighbours = unpacked(all.neighbours);
  const cosines = unpacked(all.cosines);
  const MOST = 12;
  const query = byId("query");
  const list = byId("matches");
  const found = byId("found");
  const fold = (text) => text.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase();
  const folded = all.terms.map(fold);
  const place = new Map(all.terms.map((term, number) => [term, number]));
  const preferred = [];  // of each concept the first term
  all.conceptsOf.forEach((concepts, number) => concepts.forEach((concept) => { preferred[concept] ??= number; }));
  const address = (number) => `#term=${encodeURIComponent(all.terms[number])}`;
  const filters = ["languages", "vocabularies"].map((name) => [byId(name), all[name]]).filter(([select]) => select);
  const passes = (number) => filters.every(
    ([select, coded]) => select.value === "" || coded.of[number].includes(Number(select.value)));
  let matches = [];
  let active = -1;

  // Terms that begin with the words come first, then those with a word that does, then any other.
  function search(text) {
    const wanted = fold(text.trim());
    const ranks = [[], [], []];
    let count = 0;
    if (wanted) {
      folded.forEach((term, number) => {
        const at = term.indexOf(wanted);
        if (at < 0 || !passes(number)) return;
        count += 1;
        const rank = at === 0 ? 0 : /[\p{L}\p{N}]/u.test(term[at - 1]) ? 2 : 1;
        ranks[rank].push(number);
      });
    }
    for (const rank of ranks) rank.sort((a, b) => folded[a].length - folded[b].length || a - b);
    return { best: ranks.flat().slice(0, MOST), count };
  }
  function choose(number) {
    active = number;
    [...list.children].forEach((option, at) => {
      option.setAttribute("aria-selected", String(at === active));
      if (at === active) option.scrollIntoView({ block: "nearest" });
    });
    if (active < 0) query.removeAttribute("aria-activedescendant");
    else query.setAttribute("aria-activedescendant", `match-${active}`);
  }
  function open() {
    const { best, count } = search(query.value);
    matches = best;
    list.replaceChildren(...matches.map((number, at) => {
      const option = make("li", all.terms[number], { role: "option", id: `match-${at}`, "aria-selected": "false" });
      option.addEventListener("pointerdown", (event) => { event.preventDefault(); go(number); });
      return option;
    }));
    const empty = query.value.trim() === "";
    found.textContent = empty ? "" : count > MOST ? `${count} terms match; the first ${MOST} are listed` : `${count} terms match`;
    list.hidden = !matches.length;
    query.setAttribute("aria-expanded", String(!list.hidden));
    choose(-1);
  }
  function close() {
    list.hidden = true;
    query.setAttribute("aria-expanded", "false");
    choose(-1);
  }
  function go(number) {
    close();
    if (location.hash === address(number)) show();
    else location.hash = address(number).slice(1);
  }
  query.addEventListener("input", open);
  query.addEventListener("blur", close);
  query.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      if (list.hidden) query.value = "";
      close();
    } else if (event.key === "Enter") {
      if (list.hidden) open();
      else go(matches[Math.max(active, 0)]);
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      if (list.hidden) open();
      if (matches.length) choose((active + (event.key === "ArrowDown" ? 1 : active < 0 ? 0 : -1) + matches.length) % matches.length);
    } else return;
    event.preventDefault();
  });
  for (const [select] of filters) select.addEventListener("change", () => { close(); show(); });

  function facts(number) {
    const concepts = all.conceptsOf[number];
    const kinds = new Set(concepts.flatMap((concept) => all.types[concept].map((type) => all.typeNames[type])));
    const named = filters.map(([, coded]) => coded.of[number].map((one) => coded.names[one]).join(", "));
    const shown = concepts.map((concept) => (preferred[concept] === number ? all.concepts[concept]
      : `${all.concepts[concept]} ${all.terms[preferred[concept]]}`));
    return [shown.join(", "), [...kinds].join(", "), ...named].filter(Boolean);
  }
  function neighbourRow(number, rank, cosine, own) {
    const row = document.createElement("tr");
    const name = document.createElement("td");
    name.append(make("a", all.terms[number], { href: address(number) }));
    if (all.conceptsOf[number].some((concept) => own.includes(concept))) name.append(" ", make("span", "same concept", { class: "same" }));
    const measure = make("td", (cosine / 1000).toFixed(3));
    const bar = make("span", "", { class: "bar", "aria-hidden": "true" });
    bar.append(make("span", "", { style: `width:${Math.max(0, cosine / 10)}%` }));
    measure.append(bar);
    row.append(make("td", rank), name, measure, make("td", facts(number).join(" · ")));
    return row;
  }
  function show() {
    const asked = location.hash.startsWith("#term=") ? decode(location.hash.slice(6)) : null;
    const exact = asked === null ? 0 : place.get(asked);
    const alike = exact === undefined ? folded.indexOf(fold(asked)) : -1;  // in other letters, as ä for a
    const number = alike < 0 ? exact : alike;
    const box = byId("term");
    if (number === undefined) {
      box.replaceChildren(make("p", `“${asked}” is not among the terms of this report.`));
      return;
    }
    query.value = asked ?? "";
    found.textContent = "";
    const rows = [];
    for (let rank = 0; rank < all.k; rank += 1) {
      const at = number * all.k + rank;
      if (passes(neighbours[at])) rows.push(neighbourRow(neighbours[at], rank + 1, cosines[at], all.conceptsOf[number]));
    }
    const head = document.createElement("tr");
    head.append(...["rank", "nearest terms", "cosine", "concept"].map((name) => make("th", name, { scope: "col" })));
    const [table, thead, tbody] = ["table", "thead", "tbody"].map((name) => document.createElement(name));
    thead.append(head);
    tbody.append(...rows);
    table.append(thead, tbody);
    const scroll = make("div", "", { class: "scroll whole", role: "region", tabindex: "0", "aria-label": "Nearest terms" });
    scroll.append(table);
    const none = make("p", `None of the ${all.k} nearest terms passes the filter.`);
    box.replaceChildren(make("h3", all.terms[number]), make("p", facts(number).join(" · "), { class: "facts" }), rows.length ? scroll : none);
    if (asked !== null) byId("explorer").scrollIntoView();
  }
  function decode(text) {
    try { return decodeURIComponent(text); } catch { return text; }
  }
  addEventListener("hashchange", () => { if (location.hash.startsWith("#term=")) show(); });
  show();
}
