"use strict";
// What is decided: of each mention open, accepted with its concepts, or rejected; a note, who and when.
// Text reaches the page through textContent alone, so that no mention is ever read as HTML.
const byId = (id) => document.getElementById(id);
const make = (name, text = "", attributes = {}, ...children) => {
  const element = document.createElement(name);
  element.textContent = text;
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
};
const number = (value) => value.toLocaleString("en");

const OPEN = "open";
const ACCEPTED = "accepted";
const REJECTED = "rejected";

const NOTHING = { verdict: OPEN, concepts: [], note: "", reviewer: "", date: "" };
const isSame = (one, other) => one.verdict === other.verdict && one.concepts.join("|") === other.concepts.join("|");

class Decisions {
  // `decided` is what the page begins with, as (row, concepts, note, reviewer, date, isOpen), unless the browser has more.
  constructor(decided, key) {
    this.of = new Map();  // row -> { verdict, concepts, note, reviewer, date }; rows that are open without a note are not there
    this.steps = [];  // to undo: of each its rows as they were before
    this.place = `coder_jax review ${key}`;
    this.unsaved = new Set();  // rows that were changed since they were saved as CSV
    this.why = "";  // why the browser does not keep them
    for (const [row, concepts, note, reviewer, date, isOpen] of decided) {
      const verdict = isOpen ? OPEN : concepts.length ? ACCEPTED : REJECTED;
      this.of.set(row, { verdict, concepts, note, reviewer, date });
    }
    this.reread();
    this.keep();
  }

  get(row) {
    return this.of.get(row) ?? NOTHING;
  }

  count(verdict) {
    let count = 0;
    for (const one of this.of.values()) count += one.verdict === verdict;
    return count;
  }

  // One step that can be undone: (row, { verdict, concepts, note, reviewer, date }) of each.
  change(changes) {
    this.steps.push(changes.map(([row, after]) => [row, this.get(row), after.note]));
    this.put(changes);
  }

  // Takes the last step back, but for notes that were typed since: a note is no step.
  undo() {
    const step = this.steps.pop();
    if (step) this.put(step.map(([row, before, wrote]) => {
      const { note } = this.get(row);
      return [row, note === wrote ? before : { ...before, note }];
    }));
    return step;
  }

  note(row, note) {
    this.put([[row, { ...this.get(row), note }]]);
  }

  put(changes) {
    for (const [row, decision] of changes) {
      this.unsaved.add(row);
      if (decision.verdict === OPEN && !decision.note) this.of.delete(row);
      else this.of.set(row, decision);
    }
    this.keep();
  }

  saved() {
    this.unsaved.clear();
    this.keep();
  }

  keep() {
    try {
      localStorage.setItem(this.place, JSON.stringify({ all: [...this.of], unsaved: [...this.unsaved] }));
      this.why = "";
    } catch (error) {
      this.why = error.name === "QuotaExceededError" ? "its storage is full" : "it allows this page no storage";
    }
  }

  // What the browser has, from before or from another window.
  reread() {
    try {
      const kept = JSON.parse(localStorage.getItem(this.place));
      if (!kept) return;
      this.of = new Map(kept.all);
      this.unsaved = new Set(kept.unsaved);
    } catch { /* keep() says why */ }
  }
}
