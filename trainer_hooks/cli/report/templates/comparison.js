// The table of runs, the means of their groups, and their hyperparameters against the metric.
let table = data.table;
const PAGE_OF_ROWS = 200;
const MOST_METRICS = 6;
const MOST_SETTINGS = 8;
const MOST_LINES = 1000;
const monitorBox = byId("monitor");
const modeBox = byId("mode");
const filterBox = byId("runs-filter");
const view = { sort: null, isDown: false, shown: PAGE_OF_ROWS };
const isNumber = (value) => typeof value === "number";
const monitor = () => Number(monitorBox.value);
const modeOf = (metric) => (metric === monitor() ? modeBox.value : table.modes[metric]);
const lastOf = (row, metric) => row.metrics[metric]?.[0] ?? null;
const bestOf = (row, metric) => row.metrics[metric]?.[modeOf(metric) === "min" ? 1 : 2] ?? null;

function duration(seconds) {
  if (seconds < 60) return `${digits(Math.round(10 * seconds) / 10)} s`;
  const minutes = Math.floor(seconds / 60);
  return minutes < 60 ? `${minutes} min ${Math.round(seconds % 60)} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

// --- columns ---

// at first the metric that is compared and those of validations
const ranked = () => table.metrics.map((_, index) => index).sort((a, b) => rank(a) - rank(b) || a - b);
let order = ranked();
function rank(metric) {
  if (metric === table.monitor) return 0;
  if (table.minor.includes(metric)) return 3;
  return /^(val|test)/i.test(table.metrics[metric]) ? 1 : 2;
}
// not learning rates, gradients and the system
const metricsAtFirst = () => order.filter((metric) => rank(metric) < 3).slice(0, MOST_METRICS);
const settingsAtFirst = () => table.settings.map((_, index) => index).filter((index) => !table.places.includes(index)).slice(0, MOST_SETTINGS);
const shownMetrics = new Set(metricsAtFirst());
const shownSettings = new Set(settingsAtFirst());

function columns() {
  const valuesOf = (index) => [
    { name: `${table.metrics[index]} last`, value: (row) => lastOf(row, index) },
    { name: `${table.metrics[index]} best`, value: (row) => bestOf(row, index), metric: index },
  ];
  const listed = [
    { name: "run", value: (row) => row.name },
    ...(table.metrics.length ? valuesOf(monitor()) : []),
    { name: "state", value: (row) => row.state },
    ...[...shownSettings].sort((a, b) => a - b).map((index) => ({ name: table.settings[index], value: (row) => row.settings[index] })),
    ...order.filter((index) => index !== monitor() && shownMetrics.has(index)).flatMap(valuesOf),
  ];
  listed.push({ name: "time", value: (row) => row.seconds, show: (row) => duration(row.seconds) });
  listed.push({ name: "steps", value: (row) => row.steps, show: (row) => row.steps.toLocaleString("en") });
  listed.push({ name: "folder", value: (row) => row.folder });
  return listed;
}

function addColumnBoxes(names, shown) {
  names.forEach((name, index) => {
    const box = element("input", { type: "checkbox", checked: shown.has(index) });
    box.addEventListener("change", () => {
      if (box.checked) shown.add(index); else shown.delete(index);
      show();
    });
    byId("columns").append(element("label", {}, [box, name]));
  });
}

// --- filter and order ---

const COMPARES = {
  "<=": (a, b) => a <= b, ">=": (a, b) => a >= b, "<": (a, b) => a < b, ">": (a, b) => a > b, "=": (a, b) => a === b,
};

function valueNamed(row, name) {
  const setting = table.settings.indexOf(name);
  if (setting >= 0) return row.settings[setting];
  const metric = table.metrics.indexOf(name);
  if (metric >= 0) return lastOf(row, metric);
  return { time: row.seconds, steps: row.steps, state: row.state }[name];
}

function matches(row, word) {
  const parts = word.match(/^(.+?)(<=|>=|<|>|=)(.+)$/);
  const value = parts ? valueNamed(row, parts[1]) : undefined;
  if (value !== undefined) {
    if (isNumber(value)) return COMPARES[parts[2]](value, Number(parts[3]));
    return parts[2] === "=" && String(value).toLowerCase() === parts[3].toLowerCase();
  }
  return `${row.name} ${row.state} ${row.detail} ${row.folder}`.toLowerCase().includes(word.toLowerCase());
}

function compared(a, b) {
  // what is no number comes last, whichever way
  if (isNumber(a) && isNumber(b)) return view.isDown ? b - a : a - b;
  if (isNumber(a) !== isNumber(b)) return isNumber(a) ? -1 : 1;
  const texts = [a, b].map((value) => String(value ?? ""));
  if (!texts[0] !== !texts[1]) return texts[0] ? -1 : 1;
  return naturally(...texts) * (view.isDown ? -1 : 1);
}

// by the numbers in texts: `lr=0.01` before `lr=0.1`, and `fold 2` before `fold 10`
function naturally(a, b) {
  const [left, right] = [a, b].map((text) => text.split(/(\d+(?:\.\d+)?(?:e[-+]?\d+)?)/));
  for (let index = 0; index < Math.min(left.length, right.length); index += 1) {
    // the numbers are at the odd places
    const order = index % 2 ? left[index] - right[index] : left[index].localeCompare(right[index]);
    if (order) return order;
  }
  return left.length - right.length;
}

function rowsShown() {
  const words = filterBox.value.split(/\s+/).filter(Boolean);
  const rows = table.rows.filter((row) => words.every((word) => matches(row, word)));
  const column = columns().find((each) => each.name === view.sort);
  return column ? rows.sort((a, b) => compared(column.value(a), column.value(b))) : rows;
}

// --- the table ---

function bestRows(metric) {
  const values = table.rows.map((row) => bestOf(row, metric)).filter(isNumber);
  // not with a spread: ten thousand arguments are many
  return values.reduce((a, b) => (modeOf(metric) === "min" ? Math.min(a, b) : Math.max(a, b)), modeOf(metric) === "min" ? Infinity : -Infinity);
}

function headCell(column) {
  const sorts = view.sort === column.name;
  const button = element("button", { type: "button", className: "sort" }, column.name);
  button.addEventListener("click", () => {
    // the first click on a metric or setting sorts upwards, the next one downwards
    view.isDown = sorts && !view.isDown;
    view.sort = column.name;
    show();
    [...byId("runs-table").querySelectorAll(".sort")].find((each) => each.textContent === column.name)?.focus();
  });
  return element("th", { scope: "col", "aria-sort": sorts ? (view.isDown ? "descending" : "ascending") : "none" }, button);
}

function nameCell(row) {
  const box = element("input", { type: "checkbox", checked: row.drawn && !hidden.has(row.index), disabled: !row.drawn });
  box.setAttribute("aria-label", `draw ${row.name}`);
  if (!row.drawn) box.title = "its curves are not in this page: name fewer runs";
  box.addEventListener("change", () => {
    if (box.checked) hidden.delete(row.index); else hidden.add(row.index);
    redraw();
    drawAgainst(rowsShown());
  });
  const name = row.link ? element("a", { href: row.link }, row.name) : row.name;
  return element("th", { scope: "row" }, element("span", { className: "chip" }, [box, element("span", { className: `dot c${row.index % 10}` }), name]));
}

function stateCell(row) {
  const badge = row.state ? [element("span", { className: `badge ${row.tone}` }, row.state)] : [];
  return element("td", {}, [...badge, row.detail ? ` ${row.detail}` : ""]);
}

function drawTable(rows) {
  const listed = columns();
  const best = new Map(listed.filter((column) => column.metric !== undefined).map((column) => [column, bestRows(column.metric)]));
  const body = element("tbody", {}, rows.slice(0, view.shown).map((row) => element("tr", {}, listed.map((column) => {
    if (column.name === "run") return nameCell(row);
    if (column.name === "state") return stateCell(row);
    const value = column.value(row);
    const cell = element("td", { className: isNumber(value) ? "number" : "" }, column.show ? column.show(row) : digits(value));
    if (best.has(column) && value === best.get(column)) cell.classList.add("best");
    return cell;
  }))));
  byId("runs-table").replaceChildren(element("thead", {}, element("tr", {}, listed.map(headCell))), body);
  const isAll = rows.length === table.rows.length;
  byId("runs-count").textContent = `${rows.length.toLocaleString("en")}${isAll ? "" : ` of ${table.rows.length.toLocaleString("en")}`} runs`;
  byId("more-runs").hidden = rows.length <= view.shown;
}

// --- means ---

function meanText(values) {
  const numbers = values.filter(isNumber);
  if (!numbers.length) return "";
  const mean = numbers.reduce((a, b) => a + b, 0) / numbers.length;
  const squares = numbers.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  const text = numbers.length > 1 ? `${brief(mean)} \u00b1 ${brief(Math.sqrt(squares / (numbers.length - 1)))}` : brief(mean);
  return numbers.length < values.length ? `${text} (of ${numbers.length})` : text;
}

function drawGroups() {
  byId("groups").hidden = !table.groups.length;
  const metrics = order.filter((index) => index === monitor() || shownMetrics.has(index));
  const head = ["hyperparameters", "runs", ...metrics.flatMap((index) => [`${table.metrics[index]} last`, `${table.metrics[index]} best`])];
  const body = table.groups.map((group) => {
    const rows = group.rows.map((index) => table.rows[index]);
    const cells = metrics.flatMap((index) => [meanText(rows.map((row) => lastOf(row, index))), meanText(rows.map((row) => bestOf(row, index)))]);
    return element("tr", {}, [
      element("th", { scope: "row" }, group.name || "all the same"),
      element("td", {}, `${rows.length} ${group.kinds}`),
      ...cells.map((text) => element("td", { className: "number" }, text)),
    ]);
  });
  byId("groups-table").replaceChildren(
    element("thead", {}, element("tr", {}, head.map((name) => element("th", { scope: "col" }, name)))),
    element("tbody", {}, body),
  );
}

// --- hyperparameters against the metric ---

function svg(tag, attributes, children = []) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...[children].flat());
  return made;
}

const brief = (value) => (value && Math.abs(value) < 1e-3 ? value.toExponential(2) : String(Number(value.toPrecision(4))));

// a position from 0 to 1 for each value, and the labels of the axis
function scaleOf(values) {
  const numbers = values.filter(isNumber);
  if (numbers.length && numbers.length === values.filter((value) => value !== null).length) {
    const low = numbers.reduce((a, b) => Math.min(a, b));
    const high = numbers.reduce((a, b) => Math.max(a, b));
    const isLog = low > 0 && high / low >= 50;
    const f = isLog ? Math.log : (value) => value;
    const at = (value) => (low === high ? 0.5 : (f(value) - f(low)) / (f(high) - f(low)));
    return { at: (value) => (isNumber(value) ? at(value) : null), ticks: low === high ? [[0.5, brief(low)]] : [[0, brief(low)], [1, brief(high)]], isLog };
  }
  const texts = [...new Set(values.filter((value) => value !== null).map(String))].sort();
  const at = (value) => (texts.length < 2 ? 0.5 : texts.indexOf(String(value)) / (texts.length - 1));
  return { at: (value) => (value === null ? null : at(value)), ticks: texts.length <= 12 ? texts.map((text) => [at(text), text]) : [], isLog: false };
}

const short = (text) => (text.length > 16 ? `${text.slice(0, 15)}\u2026` : text);
const titled = (name, text, attributes) => svg(name, attributes, svg("title", {}, text));
const summaryOf = (row) => `${row.name}: ${table.metrics[monitor()]} ${digits(bestOf(row, monitor()))}`;
const isDrawnRow = (row) => row.drawn && !hidden.has(row.index);
const strokeOf = (row) => (isDrawnRow(row) ? `var(--c${row.index % 10})` : "var(--faint)");

function drawAgainst(rows) {
  const metric = table.metrics[monitor()];
  const settings = [...shownSettings].filter((index) => !table.replicates.includes(index) && !table.places.includes(index));
  const isDrawn = table.rows.length >= 3 && metric !== undefined && settings.length > 0;
  byId("against").hidden = !isDrawn;
  if (!isDrawn) return;
  document.querySelectorAll(".monitor").forEach((each) => { each.textContent = metric; });
  // drawn runs last, above the others
  const lines = rows.slice(0, MOST_LINES).sort((a, b) => isDrawnRow(a) - isDrawnRow(b));
  const axes = [
    ...settings.map((index) => ({ name: table.settings[index], value: (row) => row.settings[index] })),
    // without NaN and infinities, which are texts
    { name: metric, value: (row) => (isNumber(bestOf(row, monitor())) ? bestOf(row, monitor()) : null) },
  ].map((axis) => ({ ...axis, scale: scaleOf(lines.map(axis.value)) }));
  drawParallel(axes, lines);
  const [result] = axes.slice(-1);
  byId("scatters").replaceChildren(...axes.slice(0, -1).map((axis) => scatter(axis, result, lines)));
}

function drawParallel(axes, rows) {
  const holder = byId("parallel");
  const width = Math.max(280, 110 * axes.length, holder.clientWidth);
  const height = 280;
  const x = (index) => 60 + (index * (width - 140)) / (axes.length - 1);
  const y = (share) => height - 30 - share * (height - 75);
  const parts = rows.map((row) => {
    const points = axes.map((axis, index) => [x(index), axis.scale.at(axis.value(row))]).filter(([, share]) => share !== null);
    const path = points.map(([at, share]) => `${at.toFixed(1)},${y(share).toFixed(1)}`).join(" ");
    return titled("polyline", summaryOf(row), { points: path, class: "line", fill: "none", stroke: strokeOf(row), opacity: isDrawnRow(row) ? 1 : 0.35 });
  });
  axes.forEach((axis, index) => {
    parts.push(svg("line", { x1: x(index), x2: x(index), y1: y(0), y2: y(1), stroke: "var(--text)" }));
    parts.push(titled("text", axis.name, { x: x(index), y: 16, class: "axis-name" }));
    parts[parts.length - 1].append(short(axis.name) + (axis.scale.isLog ? " (log)" : ""));
    for (const [share, label] of axis.scale.ticks) {
      parts.push(svg("text", { x: x(index) + 5, y: y(share) + (share === 0 ? 16 : -5), class: "tick" }, short(label)));
    }
  });
  holder.replaceChildren(svg("svg", { width, height, viewBox: `0 0 ${width} ${height}` }, parts));
}

function scatter(axis, result, rows) {
  const [width, height] = [360, 240];
  const x = (share) => 80 + share * (width - 120);
  const y = (share) => height - 40 - share * (height - 60);
  const parts = [
    svg("line", { x1: 70, x2: width - 20, y1: height - 30, y2: height - 30, stroke: "var(--line)" }),
    svg("line", { x1: 70, x2: 70, y1: 12, y2: height - 30, stroke: "var(--line)" }),
  ];
  for (const [share, label] of axis.scale.ticks) parts.push(svg("text", { x: x(share), y: height - 14, class: "tick middle" }, short(label)));
  for (const [share, label] of result.scale.ticks) parts.push(svg("text", { x: 65, y: y(share) + 4, class: "tick end" }, label));
  for (const row of rows) {
    const [across, up] = [axis.scale.at(axis.value(row)), result.scale.at(result.value(row))];
    if (across === null || up === null) continue;
    parts.push(titled("circle", summaryOf(row), { cx: x(across).toFixed(1), cy: y(up).toFixed(1), r: 4.5, fill: strokeOf(row), opacity: 0.8 }));
  }
  const title = [axis, result].map((each) => each.name + (each.scale.isLog ? " (log)" : "")).join(" and ");
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title }, parts);
  return element("figure", { className: "scatter" }, [element("figcaption", {}, title), picture]);
}

// --- the difference of two configs ---

function drawDifference() {
  const [from, to] = differenceBoxes.map((box) => table.rows[Number(box.value)]);
  [from, to].forEach((row, place) => { differenceBoxes[place].dataset.folder = row.folder; });
  const line = (sign, name, value) => element("span", { className: sign === " " ? "" : sign === "+" ? "added" : "removed" }, `${sign} ${name}: ${digits(value)}\n`);
  const lines = [];
  table.settings.forEach((name, index) => {
    const [a, b] = [from.settings[index], to.settings[index]];
    if (a === b) {
      if (a !== null && byId("difference-all").checked) lines.push(line(" ", name, a));
      return;
    }
    if (a !== null) lines.push(line("-", name, a));
    if (b !== null) lines.push(line("+", name, b));
  });
  if (byId("difference-all").checked) lines.push(...table.equal.map(([name, value]) => line(" ", name, value)));
  byId("difference-lines").replaceChildren(...(lines.length ? lines : ["no difference"]));
}

const differenceBoxes = [byId("difference-from"), byId("difference-to")];

function fillDifference() {
  if (!byId("difference").open) return;
  const chosen = differenceBoxes.map((box) => table.rows.findIndex((row) => row.folder === box.dataset.folder));
  differenceBoxes.forEach((box, place) => {
    box.replaceChildren(...table.rows.map((row) => element("option", { value: row.index }, row.name)));
    box.value = chosen[place] < 0 ? Math.min(place, table.rows.length - 1) : chosen[place];
  });
  drawDifference();
}

function show() {
  const rows = rowsShown();
  drawTable(rows);
  drawGroups();
  drawAgainst(rows);
}

// what depends on the names of metrics and settings, and on which runs there are
function setUp() {
  table.rows.forEach((row, index) => { row.index = index; });
  byId("columns").replaceChildren();
  addColumnBoxes(table.settings, shownSettings);
  addColumnBoxes(table.metrics, shownMetrics);
  monitorBox.replaceChildren(...order.map((index) => element("option", { value: index }, table.metrics[index])));
  byId("difference").hidden = !table.settings.length && !table.equal.length;
  table.rows.forEach((row) => { if (!row.drawn) hidden.add(row.index); });
}

// new names are shown as at first; all else is as it was chosen
function shownAgain(shown, before, now, atFirst) {
  const names = new Set([...shown].map((index) => before[index]));
  const next = now.map((_, index) => index).filter((index) => names.has(now[index]) || (!before.includes(now[index]) && atFirst.includes(index)));
  shown.clear();
  next.forEach((index) => shown.add(index));
}

// takes over the table of a page that follows the runs
function renewTable() {
  const before = table;
  const [metric, mode] = [before.metrics[monitor()], modeBox.value];
  const folders = new Map(before.rows.map((row) => [row.folder, hidden.has(row.index)]));
  table = data.table;
  order = ranked();
  shownAgain(shownMetrics, before.metrics, table.metrics, metricsAtFirst());
  shownAgain(shownSettings, before.settings, table.settings, settingsAtFirst());
  hidden.clear();
  table.rows.forEach((row, index) => {
    if (folders.has(row.folder) ? folders.get(row.folder) : index >= MOST_DRAWN_AT_FIRST) hidden.add(index);
  });
  setUp();
  const present = table.metrics.indexOf(metric);
  monitorBox.value = present < 0 ? table.monitor : present;
  modeBox.value = present < 0 ? table.modes[table.monitor] || "min" : mode;
  fillDifference();
  show();
}

setUp();
monitorBox.value = table.monitor;
modeBox.value = table.modes[table.monitor] || "min";
monitorBox.addEventListener("change", () => { modeBox.value = table.modes[monitor()]; show(); });
modeBox.addEventListener("change", show);
filterBox.addEventListener("input", () => { view.shown = PAGE_OF_ROWS; show(); });
byId("more-runs").addEventListener("click", () => { view.shown += PAGE_OF_ROWS; show(); });
byId("difference").addEventListener("toggle", fillDifference);
differenceBoxes.forEach((box) => box.addEventListener("change", drawDifference));
byId("difference-all").addEventListener("change", drawDifference);
// of two runs the difference is what one looks for
if (table.rows.length === 2) byId("difference").open = true;
show();
