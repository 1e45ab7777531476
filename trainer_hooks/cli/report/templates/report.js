// Draws the charts of the report. Names are text: plotly takes some tags and entities in them for
// markup, so they are escaped before they are handed to it.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];
  const FEW_POINTS = 60;
  const drawn = new Set();
  const hidden = new Set();
  const state = { x: "step", y: "linear", smoothing: 0 };
  const isSeveral = data.runs.length > 1;
  const config = {
    responsive: true,
    displaylogo: false,
    modeBarButtonsToRemove: ["lasso2d", "select2d", "autoScale2d"],
  };

  const plain = (text) =>
    text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  function colours() {
    const style = getComputedStyle(document.documentElement);
    const get = (name) => style.getPropertyValue(`--${name}`).trim();
    return {
      text: get("text"), line: get("line"), card: get("card"), faint: get("faint"),
      runs: Array.from({ length: 10 }, (_, index) => get(`c${index}`)),
      outcomes: {
        finished: get("good"), failed: get("bad"), killed: get("bad"),
        "ended by a signal": get("warn"),
      },
    };
  }

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

  function layoutOf(colour, more) {
    const axis = { gridcolor: colour.line, linecolor: colour.line, zeroline: false, automargin: true };
    return {
      autosize: true,
      margin: { l: 48, r: 12, t: 28, b: 40 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: colour.text, size: 12, family: "system-ui, sans-serif" },
      hoverlabel: { bgcolor: colour.card, bordercolor: colour.line, font: { color: colour.text }, namelength: 40 },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: colour.faint, activecolor: colour.text },
      legend: { orientation: "h", y: -0.2, yanchor: "top", x: 0 },
      ...more,
      xaxis: { ...axis, ...more.xaxis },
      yaxis: { ...axis, ...more.yaxis },
    };
  }

  function curvesOf(chart, colour) {
    const names = [...new Set(chart.traces.map((trace) => trace.name))];
    const traces = [];
    chart.traces.forEach((trace, index) => {
      if (hidden.has(trace.run)) return;
      const x = state.x === "epoch" && trace.e.length ? trace.e : trace.x;
      const tint = colour.runs[(isSeveral ? trace.run : index) % colour.runs.length];
      const parts = isSeveral ? [data.runs[trace.run]] : [];
      if (!isSeveral || names.length > 1) parts.push(trace.name);
      const isFew = x.length <= FEW_POINTS;
      const dash = isSeveral ? DASHES[names.indexOf(trace.name) % DASHES.length] : "solid";
      const base = {
        type: "scatter",
        x,
        mode: isFew ? "lines+markers" : "lines",
        name: plain(parts.join(": ")),
        line: { color: tint, width: 2, dash },
        marker: { color: tint, size: 5 },
      };
      const isSmoothed = state.smoothing > 0 && x.length > 2;
      if (isSmoothed) {
        traces.push({ ...base, y: trace.y, mode: "lines", opacity: 0.3, showlegend: false, hoverinfo: "skip",
          line: { color: tint, width: 1, dash } });
      }
      traces.push({ ...base, y: isSmoothed ? smoothed(trace.y, state.smoothing) : trace.y });
    });
    return traces;
  }

  function drawCurves(chart, plot) {
    const colour = colours();
    const hasEpochs = chart.traces.some((trace) => trace.e.length);
    const isByEpoch = state.x === "epoch" && hasEpochs;
    // where a run went on after an interruption
    const resumes = chart.traces.length && !isSeveral && !isByEpoch ? data.resumes[0] : [];
    const layout = layoutOf(colour, {
      hovermode: "x unified",
      showlegend: isSeveral || chart.traces.length > 1,
      // plotly keeps zoom and hidden curves as long as this text stays the same
      uirevision: `${state.x} ${state.y}`,
      xaxis: { title: { text: isByEpoch ? "epochs" : "step", standoff: 4 }, rangemode: "normal" },
      yaxis: { type: state.y },
      shapes: resumes.map((step) => ({
        type: "line", x0: step, x1: step, yref: "paper", y0: 0, y1: 1,
        line: { color: colour.faint, width: 1, dash: "dot" },
      })),
    });
    return Plotly.react(plot, curvesOf(chart, colour), layout, config);
  }

  function drawTimeline(chart, plot) {
    const colour = colours();
    const traces = chart.spans.map((span) => ({
      type: "bar", orientation: "h", showlegend: false,
      base: [new Date(span.began * 1000).toISOString()],
      // in milliseconds; a bar of length 0 could neither be seen nor pointed at
      x: [Math.max(1, (span.ended - span.began) * 1000)],
      y: [plain(span.row)],
      marker: { color: colour.outcomes[span.outcome] || colour.runs[0], line: { color: colour.card, width: 1 } },
      hovertemplate: "%{customdata}<extra></extra>",
      customdata: [plain(span.text)],
    }));
    const layout = layoutOf(colour, {
      barmode: "overlay", bargap: 0.35,
      xaxis: { type: "date" },
      yaxis: { autorange: "reversed" },
    });
    return Plotly.react(plot, traces, layout, config);
  }

  function drawCosts(chart, plot) {
    const colour = colours();
    const callbacks = [...new Set(chart.bars.map((bar) => bar.callback))];
    const hooks = [...new Set(chart.bars.map((bar) => bar.hook))];
    const traces = hooks.map((hook, index) => {
      const bars = chart.bars.filter((bar) => bar.hook === hook);
      return {
        type: "bar", orientation: "h", name: plain(hook),
        x: bars.map((bar) => bar.total), y: bars.map((bar) => plain(bar.callback)),
        marker: { color: colour.runs[index % colour.runs.length] },
        hovertemplate: "%{y}, %{fullData.name}: %{x:.4~s}s<extra></extra>",
      };
    });
    const layout = layoutOf(colour, {
      barmode: "stack", showlegend: false,
      xaxis: { title: { text: "seconds", standoff: 4 } },
      yaxis: { categoryorder: "array", categoryarray: callbacks.map(plain), autorange: "reversed" },
    });
    return Plotly.react(plot, traces, layout, config);
  }

  const DRAW = { curves: drawCurves, timeline: drawTimeline, costs: drawCosts };
  const figures = [...document.querySelectorAll("figure.chart")];
  const chartOf = (figure) => data.charts[Number(figure.dataset.chart)];
  const plotOf = (figure) => figure.querySelector(".plot");

  function draw(figure) {
    drawn.add(figure);
    const chart = chartOf(figure);
    return DRAW[chart.draws](chart, plotOf(figure));
  }

  const redraw = () => drawn.forEach((figure) => draw(figure));

  // --- by hand and by key ---

  function shift(plot, move, zoom) {
    const axis = plot.layout && plot.layout.xaxis;
    if (!axis || !axis.range || axis.type === "date") return;
    const [low, high] = axis.range.map(Number);
    const width = high - low;
    const middle = low + width / 2 + move * width;
    Plotly.relayout(plot, { "xaxis.range": [middle - (width * zoom) / 2, middle + (width * zoom) / 2] });
  }

  const reset = (plot) => Plotly.relayout(plot, { "xaxis.autorange": true, "yaxis.autorange": true });

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

  for (const figure of figures) {
    if (chartOf(figure).draws !== "curves") continue;
    plotOf(figure).addEventListener("keydown", (event) => {
      const act = KEYS[event.key];
      // with Ctrl these keys are the browser's: it zooms the whole page
      if (!act || event.ctrlKey || event.metaKey || event.altKey || !drawn.has(figure)) return;
      event.preventDefault();
      act(plotOf(figure));
    });
  }

  const byId = (id) => document.getElementById(id);
  const tools = byId("tools");
  if (tools) {
    const smoothing = byId("smoothing");
    byId("x").addEventListener("change", (event) => { state.x = event.target.value; redraw(); });
    byId("y").addEventListener("change", (event) => { state.y = event.target.value; redraw(); });
    smoothing.addEventListener("input", () => {
      state.smoothing = Number(smoothing.value);
      byId("smoothing-shown").textContent = state.smoothing.toFixed(2);
      redraw();
    });
    byId("reset").addEventListener("click", () => {
      for (const figure of drawn) if (chartOf(figure).draws === "curves") reset(plotOf(figure));
    });
    byId("filter").addEventListener("input", (event) => {
      const wanted = event.target.value.toLowerCase();
      for (const figure of figures) {
        const chart = chartOf(figure);
        if (chart.draws !== "curves") continue;
        const names = [chart.title, ...chart.traces.map((trace) => trace.name)];
        figure.hidden = !names.some((name) => name.toLowerCase().includes(wanted));
      }
    });
    tools.querySelectorAll("input[data-run]").forEach((box) => {
      box.addEventListener("change", () => {
        const run = Number(box.dataset.run);
        if (box.checked) hidden.delete(run); else hidden.add(run);
        redraw();
      });
    });
    // a browser keeps what was chosen when the page is loaded again
    state.x = byId("x").value;
    state.y = byId("y").value;
    state.smoothing = Number(smoothing.value);
    byId("smoothing-shown").textContent = state.smoothing.toFixed(2);
  }

  // charts are drawn when they come near the window
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      watcher.unobserve(entry.target);
      draw(entry.target);
    }
  }, { rootMargin: "400px" });
  figures.forEach((figure) => watcher.observe(figure));
  // plotly was given the colours themselves, so the style sheet does not reach them
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  // what nobody has scrolled to would be printed empty
  addEventListener("beforeprint", () => figures.forEach((figure) => { if (!drawn.has(figure)) draw(figure); }));
})();
