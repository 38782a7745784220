"use strict";
const read = (id) => JSON.parse(document.getElementById(id).textContent);
const points = read("points"), times = read("times");
const table = document.getElementById("board"), body = table.tBodies[0];
const heads = [...table.tHead.rows[0].cells];
const whole = (number) => Math.round(number).toLocaleString("en");

// The times, which stand in one place of this file.
const machines = new Set();
for (const row of body.rows) {
  const speed = times[row.dataset.name];
  if (!speed) continue;
  const cell = row.querySelector(".speed");
  cell.textContent = whole(speed.terms_per_s);
  cell.dataset.value = speed.terms_per_s;
  machines.add(speed.machine);
}
if (machines.size) document.getElementById("machine").textContent = `terms/s: ${[...machines].join("; ")}.`;

// Sorting: rows without a value stay behind the others.
const order = (column, down) => {
  const number = "number" in heads[column].dataset;
  const value = (row) => row.cells[column].dataset.value;
  const rows = [...body.rows].sort((a, b) => {
    const [one, other] = [value(a), value(b)];
    if (one === "" || other === "") return (one === "") - (other === "");
    const side = number ? Number(one) - Number(other) : one.localeCompare(other, "en");
    return down ? -side : side;
  });
  body.append(...rows);
  heads.forEach((head, i) => head.setAttribute(
    "aria-sort", i === column ? (down ? "descending" : "ascending") : "none"));
};
heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
  const sorted = head.getAttribute("aria-sort");
  order(column, sorted === "none" ? "number" in head.dataset : sorted === "ascending");
}));

// The sets of a language, and the mean over those that are shown.
const language = document.getElementById("language");
const shown = () => heads.map((head, i) => i).filter((i) => "language" in heads[i].dataset && !heads[i].hidden);
const choose = () => {
  for (const cell of table.querySelectorAll("[data-language]")) {
    cell.hidden = Boolean(language.value) && cell.dataset.language !== language.value;
  }
  const column = heads.findIndex((head) => head.id === "mean");
  for (const row of body.rows) {
    const values = shown().map((i) => row.cells[i].dataset.value);
    const cell = row.cells[column];
    const mean = values.includes("") ? "" : values.reduce((sum, one) => sum + Number(one), 0) / values.length;
    cell.dataset.value = mean;
    cell.textContent = mean === "" ? "-" : mean.toFixed(1);
  }
  order(column, true);
  draw();
};

// The picture.
const across = document.getElementById("across"), up = document.getElementById("up");
const picture = document.getElementById("picture");
const element = (name, attributes, text = "") => {
  const one = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) one.setAttribute(key, value);
  one.textContent = text;
  picture.append(one);
  return one;
};
const draw = () => {
  picture.replaceChildren();
  const rows = Object.fromEntries([...body.rows].map((row) => [row.dataset.name, row]));
  const drawn = points.map((point) => {
    const row = rows[point.name];
    const mean = row.querySelector(".mean").dataset.value;
    const x = across.value === "speed" ? times[point.name]?.terms_per_s : point.parameters / 1e6;
    const y = up.value ? point.values[up.value] : mean === "" ? undefined : Number(mean);
    return { name: point.name, x, y, base: row.classList.contains("base") };
  }).filter((point) => point.x > 0 && point.y !== undefined);
  if (!drawn.length) {
    element("text", { x: 380, y: 210, "text-anchor": "middle", class: "quiet" }, "No encoder has both.");
    return;
  }
  const [left, right, top, bottom] = [60, 740, 20, 370];
  const logs = drawn.map((point) => Math.log10(point.x));
  const [least, most] = [Math.min(...logs) - .15, Math.max(...logs) + .35];
  const scores = drawn.map((point) => point.y);
  const room = Math.max(2, (Math.max(...scores) - Math.min(...scores)) * .1);
  const [low, high] = [Math.min(...scores) - room, Math.max(...scores) + room];
  const placeX = (x) => left + (Math.log10(x) - least) / (most - least) * (right - left);
  const placeY = (y) => bottom - (y - low) / (high - low) * (bottom - top);
  for (let power = Math.floor(least); power <= most; power++) {
    for (const digit of [1, 2, 5]) {
      const x = digit * 10 ** power;
      if (Math.log10(x) < least || Math.log10(x) > most) continue;
      element("line", { x1: placeX(x), x2: placeX(x), y1: top, y2: bottom });
      element("text", { x: placeX(x), y: bottom + 16, "text-anchor": "middle", class: "quiet" }, x.toLocaleString("en"));
    }
  }
  const step = [1, 2, 5, 10, 20].find((size) => (high - low) / size <= 7) ?? 50;
  for (let y = Math.ceil(low / step) * step; y <= high; y += step) {
    element("line", { x1: left, x2: right, y1: placeY(y), y2: placeY(y) });
    element("text", { x: left - 8, y: placeY(y) + 4, "text-anchor": "end", class: "quiet" }, y);
  }
  element("text", { x: (left + right) / 2, y: 408, "text-anchor": "middle", class: "quiet" },
    `${across.selectedOptions[0].text} (logarithmic)`);
  element("text", { x: 14, y: 195, "text-anchor": "middle", class: "quiet", transform: "rotate(-90 14 195)" },
    up.selectedOptions[0].text);
  // Names one below the other where points lie close together.
  const names = [];
  for (const point of drawn.sort((a, b) => b.y - a.y)) {
    const [x, y] = [placeX(point.x), placeY(point.y)];
    element("circle", { cx: x, cy: y, r: 5, class: point.base ? "base" : "" });
    const width = 7 * point.name.length;
    const before = x + 9 + width > right;
    const [from, to] = before ? [x - 9 - width, x - 9] : [x + 9, x + 9 + width];
    let at = y + 4;
    while (names.some((one) => Math.abs(one.at - at) < 13 && one.from < to && from < one.to)) at += 13;
    names.push({ at, from, to });
    element("text", { x: before ? x - 9 : x + 9, y: at, "text-anchor": before ? "end" : "start" }, point.name);
  }
};
language?.addEventListener("change", choose);
across.addEventListener("change", draw);
up.addEventListener("change", draw);
draw();
