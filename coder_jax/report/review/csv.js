// Decisions as CSV, and back. mapping/coded_list.py reads the same file.
const COLUMNS = ["mention", "code", "concept", "preferred_name", "decision", "note", "reviewer", "date"];
const BETWEEN = "|";  // between the concepts of a mention, and their names
// A spreadsheet would compute what begins so. It gets a ' before it, as does what begins with ' and would
// look like that, so that taking one ' away gives every text back.
const FORMULA = /^'*[=+\-@\t\r\n＝＋－＠]/;
const guarded = (text) => (FORMULA.test(text) ? `'${text}` : text);
const unguarded = (text) => (text.startsWith("'") && FORMULA.test(text) ? text.slice(1) : text);

// `columns` are some of COLUMNS; of each row they have the same fields.
function csvOf(columns, rows) {
  const field = (text) => {
    const safe = guarded(text);
    return /[",;\t\r\n]|^\s|\s$/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  // Excel takes a file without a byte order mark for the encoding of its country.
  return `\ufeff${[columns, ...rows].map((row) => row.map(field).join(",") + "\r\n").join("")}`;
}

// { line, fields } of each row that is not empty; an Error says what is wrong.
function csvRows(text) {
  const content = text.replace(/^\ufeff/, "");
  const header = content.split("\n", 1)[0];
  const often = (mark) => header.split(mark).length;
  const separator = [",", ";", "\t"].reduce((best, one) => (often(one) > often(best) ? one : best));
  const rows = [];
  let [fields, field, quoted, line, first] = [[], "", false, 1, 1];
  const endField = () => { fields.push(field); field = ""; };
  const endRow = () => {
    endField();
    if (fields.some(Boolean)) rows.push({ line: first, fields });
    fields = [];
    first = line;
  };
  for (let at = 0; at < content.length; at += 1) {
    const letter = content[at];
    if (letter === "\n") line += 1;
    if (quoted) {
      if (letter !== '"') field += letter;
      else if (content[at + 1] === '"') { field += '"'; at += 1; }
      else quoted = false;
    } else if (letter === '"' && field === "") quoted = true;
    else if (letter === separator) endField();
    else if (letter === "\n") endRow();
    else if (letter !== "\r" || content[at + 1] !== "\n") field += letter;
  }
  if (quoted) throw new Error(`line ${first}: a double quote is not closed`);
  if (field || fields.length) endRow();
  return rows;
}

// { hasCodes, found }: of a file each [{ mention, code }, { verdict, concepts, note, reviewer, date }]; an Error says what
// is wrong, and where.
function readDecisions(text) {
  const [header = { fields: [] }, ...rows] = csvRows(text);
  const names = header.fields.map((name) => name.trim().toLowerCase());
  const place = Object.fromEntries(COLUMNS.map((name) => [name, names.indexOf(name)]));
  if (Math.min(place.mention, place.concept, place.decision) < 0) {
    throw new Error(`it has the columns ${header.fields.join(", ") || "of an empty file"}; expected mention, concept, decision and note`);
  }
  const decisions = new Map();
  for (const { line, fields } of rows) {
    if (fields.length !== names.length) throw new Error(`line ${line}: ${fields.length} columns; expected ${names.length}`);
    const [mention, code, concept, , said, note, reviewer, date] = Object.values(place).map((at) => (at < 0 ? "" : unguarded(fields[at])));
    const verdict = said.trim().toLowerCase();
    if (![ACCEPTED, REJECTED, OPEN].includes(verdict)) throw new Error(`line ${line}: found the decision “${said}”; expected accepted, rejected or open`);
    const concepts = concept.split(BETWEEN).map((one) => one.trim()).filter(Boolean);
    if ((verdict === ACCEPTED) !== concepts.length > 0) throw new Error(`line ${line}: ${verdict}, with ${concept ? "a" : "no"} concept`);
    const decision = { verdict, concepts, note, reviewer, date };
    const key = JSON.stringify([code, mention]);
    const [, other] = decisions.get(key) ?? [];
    if (other && !isSame(other, decision)) throw new Error(`line ${line}: another decision on “${mention}” than in a line before`);
    decisions.set(key, [{ mention, code }, other?.note ? other : decision]);
  }
  const found = [...decisions.values()];
  return { hasCodes: found.some(([{ code }]) => code), found };
}
