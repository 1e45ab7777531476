// Draws the charts of the report. Names are put into the page as text, never as markup.
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const DASHES = [[], [8, 4], [2, 3], [8, 4, 2, 4], [14, 4], [14, 4, 2, 4]];
const FEW_POINTS = 60;
const CURVE_HEIGHT = 260;
const MOST_DRAWN_AT_FIRST = 10;
const drawn = new Set();
// runs whose curves are not drawn: of many, all but the first
const hidden = new Set(data.runs.map((_, run) => run).slice(MOST_DRAWN_AT_FIRST));
const state = { x: "step", y: "linear", smoothing: 0 };
const isSeveral = data.runs.length > 1;

function element(tag, attributes = {}, children = []) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name in made && name !== "list") made[name] = value; else made.setAttribute(name, value);
  }
  made.append(...[children].flat());
  return made;
}

function colours() {
  const style = getComputedStyle(document.documentElement);
  const get = (name) => style.getPropertyValue(`--${name}`).trim();
  return {
    text: get("text"), line: get("line"), faint: get("faint"),
    runs: Array.from({ length: 10 }, (_, index) => get(`c${index}`)),
  };
}

const digits = (value) =>
  typeof value === "number" ? String(Number(value.toPrecision(6))) : value ?? "";

// an exponential mean in which the first values weigh no more than the others
function smoothed(values, weight) {
  let mean = 0;
  let share = 1;
  return values.map((value) => {
    mean = weight * mean + (1 - weight) * value;
    share *= weight;
    return mean / (1 - share);
  });
}

// --- curves ---

// the curves of a chart as they are drawn: name, x, y, and how
function curvesOf(chart, colour) {
  const names = [...new Set(chart.traces.map((trace) => trace.name))];
  const curves = [];
  chart.traces.forEach((trace, index) => {
    if (hidden.has(trace.run)) return;
    const axis = data.axes[trace.axis];
    const x = state.x === "epoch" && axis.e.length ? axis.e : axis.x;
    const parts = isSeveral ? [data.runs[trace.run]] : [];
    if (!isSeveral || names.length > 1) parts.push(trace.name);
    // a logarithm has no place for zero and less
    const placed = (y) => (state.y === "log" ? y.map((value) => (value > 0 ? value : null)) : y);
    const curve = {
      name: parts.join(": "),
      x,
      y: placed(trace.y),
      colour: colour.runs[(isSeveral ? trace.run : index) % colour.runs.length],
      dash: isSeveral ? DASHES[names.indexOf(trace.name) % DASHES.length] : [],
      opacity: 1,
    };
    if (state.smoothing > 0 && x.length > 2) {
      curves.push({ ...curve, name: `${curve.name} (as logged)`, opacity: 0.3 });
      curve.y = placed(smoothed(trace.y, state.smoothing));
    }
    curves.push(curve);
  });
  return curves;
}

const padded = (chart, low, high) =>
  low == null ? [0, 1] : low === high ? [low - 0.5, high + 0.5] : [low, high];

function drawCurves(chart, plot) {
  const colour = colours();
  const curves = curvesOf(chart, colour);
  const isByEpoch = state.x === "epoch" && chart.traces.some((trace) => data.axes[trace.axis].e.length);
  // where a run went on after an interruption
  const resumes = !isSeveral && !isByEpoch ? data.resumes[0] || [] : [];
  const before = plot.chart && isZoomed(plot) && plot.by === isByEpoch ? plot.chart.scales.x : null;
  const font = "12px system-ui, sans-serif";
  // as they are: uPlot's own way rounds to three digits, and a learning rate of 1e-4 to 0
  const axis = { stroke: colour.text, font, values: (made, splits) => splits.map(digits), grid: { stroke: colour.line, width: 1 }, ticks: { stroke: colour.line, width: 1 } };
  const isLog = state.y === "log" && curves.some((curve) => curve.y.some((value) => value > 0));
  const options = {
    width: Math.max(100, plot.clientWidth),
    height: CURVE_HEIGHT,
    scales: { x: { time: false, range: padded }, y: isLog ? { distr: 3 } : {} },
    axes: [
      { ...axis, label: isByEpoch ? "epochs" : "step", labelSize: 18, labelFont: font, size: 34 },
      // room for the longest label
      { ...axis, size: (made, labels) => 16 + 7 * Math.max(3, ...(labels || []).map((label) => String(label ?? "").length)) },
    ],
    cursor: { y: false, drag: { x: true, y: false }, hover: { skip: [null, undefined] }, points: { size: 6 } },
    series: [
      { label: isByEpoch ? "epochs" : "step", value: (made, value) => digits(value) || "-" },
      ...curves.map((curve) => ({
        label: curve.name, stroke: curve.colour, width: 2, dash: curve.dash, alpha: curve.opacity, spanGaps: true,
        points: { show: curve.x.length <= FEW_POINTS, size: 5, fill: curve.colour },
        value: (made, value) => digits(value) || "-",
      })),
    ],
    hooks: {
      draw: [(made) => {
        const { ctx, bbox } = made;
        ctx.save();
        ctx.strokeStyle = colour.faint;
        ctx.setLineDash([2, 4]);
        for (const step of resumes) {
          if (step < made.scales.x.min || step > made.scales.x.max) continue;
          const at = made.valToPos(step, "x", true);
          ctx.beginPath();
          ctx.moveTo(at, bbox.top);
          ctx.lineTo(at, bbox.top + bbox.height);
          ctx.stroke();
        }
        ctx.restore();
      }],
    },
  };
  const off = new Set(plot.chart ? plot.chart.series.filter((series) => !series.show).map((series) => series.label) : []);
  for (const series of options.series) if (off.has(series.label)) series.show = false;
  if (plot.chart) plot.chart.destroy();
  const joined = curves.length ? uPlot.join(curves.map((curve) => [curve.x, curve.y])) : [[]];
  plot.chart = new uPlot(options, joined, plot);
  plot.curves = curves;
  plot.by = isByEpoch;
  if (before) plot.chart.setScale("x", { min: before.min, max: before.max });
  // a click on a name hides the curve; so does a key
  plot.querySelectorAll(".u-series:not(:first-child) th").forEach((name) => {
    name.tabIndex = 0;
    name.setAttribute("role", "button");
    name.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      event.stopPropagation();
      name.click();
    });
  });
}

const fullRange = (plot) => {
  const x = plot.chart.data[0];
  return padded(plot.chart, x[0], x[x.length - 1]);
};

function isZoomed(plot) {
  const { min, max } = plot.chart.scales.x;
  const [low, high] = fullRange(plot);
  return min != null && (min !== low || max !== high);
}

// --- bars ---

// rows of bars between 0 and a maximum, drawn by the style sheet alone
function drawBars(plot, rows, from, to) {
  const bars = element("div", { className: "bars" });
  for (const [label, spans] of rows) {
    const track = element("div", { className: "track" }, spans.map((span) => {
      const bar = element("div", { className: `bar ${span.style}`, title: span.title });
      bar.style.left = `${(100 * (span.from - from)) / (to - from || 1)}%`;
      bar.style.width = `max(2px, ${(100 * (span.to - span.from)) / (to - from || 1)}%)`;
      return bar;
    }));
    bars.append(element("div", { className: "bar-label" }, label), track);
  }
  plot.replaceChildren(bars);
}

const grouped = (items, nameOf) => {
  const groups = new Map();
  for (const item of items) groups.set(nameOf(item), [...(groups.get(nameOf(item)) || []), item]);
  return groups;
};

const OUTCOMES = { finished: "good", failed: "bad", killed: "bad", "ended by a signal": "warn" };

function drawTimeline(chart, plot) {
  const rows = [...grouped(chart.spans, (span) => span.row)].map(([row, spans]) => [
    row,
    spans.map((span) => ({ from: span.began, to: span.ended, title: span.text, style: OUTCOMES[span.outcome] || "live" })),
  ]);
  drawBars(plot, rows, Math.min(...chart.spans.map((span) => span.began)), Math.max(...chart.spans.map((span) => span.ended)));
}

function drawCosts(chart, plot) {
  const hooks = [...new Set(chart.bars.map((bar) => bar.hook))];
  let longest = 0;
  const rows = [...grouped(chart.bars, (bar) => bar.callback)].map(([callback, bars]) => {
    let from = 0;
    const spans = bars.map((bar) => {
      const span = {
        from, to: from + bar.total, style: `c${hooks.indexOf(bar.hook) % 10}`,
        title: `${callback}, ${bar.hook}: ${digits(bar.total)} s`,
      };
      from = span.to;
      return span;
    });
    longest = Math.max(longest, from);
    return [callback, spans];
  });
  drawBars(plot, rows, 0, longest);
}

const DRAW = { curves: drawCurves, timeline: drawTimeline, costs: drawCosts };
const figures = new Set();
const chartOf = (figure) => data.charts[Number(figure.dataset.chart)];
const plotOf = (figure) => figure.querySelector(".plot");
const isCurves = (figure) => chartOf(figure).draws === "curves";

function draw(figure) {
  drawn.add(figure);
  const chart = chartOf(figure);
  DRAW[chart.draws](chart, plotOf(figure));
}

// charts are drawn when they come near the window
const watcher = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    watcher.unobserve(entry.target);
    draw(entry.target);
  }
}, { rootMargin: "400px" });

function addFigure(figure) {
  figures.add(figure);
  watcher.observe(figure);
  if (!isCurves(figure)) return;
  resized.observe(plotOf(figure));
  plotOf(figure).addEventListener("keydown", (event) => {
    const act = KEYS[event.key];
    // with Ctrl these keys are the browser's: it zooms the whole page
    if (!act || event.ctrlKey || event.metaKey || event.altKey || !drawn.has(figure)) return;
    event.preventDefault();
    act(plotOf(figure));
  });
}

function removeFigure(figure) {
  figures.delete(figure);
  drawn.delete(figure);
  watcher.unobserve(figure);
  resized.unobserve(plotOf(figure));
  if (plotOf(figure).chart) plotOf(figure).chart.destroy();
  figure.remove();
}

function redraw() {
  for (const figure of drawn) if (isCurves(figure)) draw(figure);
}

// --- by hand and by key ---

function shift(plot, move, zoom) {
  const { min, max } = plot.chart.scales.x;
  if (min == null) return;
  const width = max - min;
  const middle = min + width / 2 + move * width;
  plot.chart.setScale("x", { min: middle - (width * zoom) / 2, max: middle + (width * zoom) / 2 });
}

function reset(plot) {
  const [min, max] = fullRange(plot);
  plot.chart.setScale("x", { min, max });
}

const KEYS = {
  ArrowLeft: (plot) => shift(plot, -0.2, 1),
  ArrowRight: (plot) => shift(plot, 0.2, 1),
  "+": (plot) => shift(plot, 0, 0.6),
  // the key of + without Shift
  "=": (plot) => shift(plot, 0, 0.6),
  "-": (plot) => shift(plot, 0, 1 / 0.6),
  0: reset,
  Escape: reset,
};

const resized = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const width = Math.max(100, target.clientWidth);
    if (target.chart && target.chart.width !== width) target.chart.setSize({ width, height: CURVE_HEIGHT });
  }
});

function filterFigures() {
  const wanted = byId("filter").value.toLowerCase();
  for (const figure of figures) {
    if (!isCurves(figure)) continue;
    const chart = chartOf(figure);
    const names = [chart.title, ...chart.traces.map((trace) => trace.name)];
    figure.hidden = !names.some((name) => name.toLowerCase().includes(wanted));
  }
}

if (byId("tools")) {
  const smoothing = byId("smoothing");
  byId("x").addEventListener("change", (event) => { state.x = event.target.value; redraw(); });
  byId("y").addEventListener("change", (event) => { state.y = event.target.value; redraw(); });
  smoothing.addEventListener("input", () => {
    state.smoothing = Number(smoothing.value);
    byId("smoothing-shown").textContent = state.smoothing.toFixed(2);
    redraw();
  });
  byId("reset").addEventListener("click", () => {
    for (const figure of drawn) if (isCurves(figure)) reset(plotOf(figure));
  });
  byId("filter").addEventListener("input", filterFigures);
  // a browser keeps what was chosen when the page is loaded again
  state.x = byId("x").value;
  state.y = byId("y").value;
  state.smoothing = Number(smoothing.value);
  byId("smoothing-shown").textContent = state.smoothing.toFixed(2);
}

document.querySelectorAll("figure.chart").forEach(addFigure);
// a canvas is given the colours themselves, so the style sheet does not reach it
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
// what nobody has scrolled to would be printed empty
addEventListener("beforeprint", () => figures.forEach((figure) => { if (!drawn.has(figure)) draw(figure); }));
