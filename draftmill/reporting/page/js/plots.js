// Plots: Observable Plot, drawn to the width at hand and again when that changes. Each has words and a table beside it.

const redrawn = new Map(); // element -> how to draw into it at a width
const SECONDS_S = 600; // shorter: times of day with their seconds
const CLOCK_S = 129600; // shorter than a day and a half: times of day, else days
const SIDES = 68; // px left and right of what is drawn
const NAME_PX = 28; // a quantile's name with a gap
const NARROW = 480; // px; below, ticks are fewer

const watched = new ResizeObserver((entries) => {
  for (const {target, contentRect} of entries) {
    const width = Math.floor(contentRect.width);
    if (width > 0 && target.drawnWidth !== width) drawInto(target, width);
  }
});

function drawInto(target, width) {
  target.drawnWidth = width;
  const svg = Plot.plot({
    className: "figure", width, height: 200, marginLeft: SIDES - 16, marginRight: 16, marginBottom: 36,
    style: {background: "none", color: "inherit", fontFamily: "inherit", fontSize: "12px", overflow: "visible"},
    ...redrawn.get(target)(width),
  });
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", target.dataset.label);
  target.replaceChildren(svg);
}

// label: what a person who does not see it is told; numbers: its table.
function plot(title, label, options, numbers) {
  const target = el("div", {class: "plot", "data-label": label});
  redrawn.set(target, options);
  watched.observe(target);
  return el("figure", {}, el("figcaption", {}, title), target, numbers && el("div", {class: "numbers"}, folded("The numbers", numbers)));
}

// Of a logarithmic axis: 1, 2, 5 of each decade where there is room, else its beginning.
function decades(low, high, width) {
  const wanted = (high / low) < 1000 && width >= NARROW ? [1, 2, 5] : [1];
  const found = [];
  for (let ten = 10 ** Math.floor(Math.log10(low)); ten <= high; ten *= 10) found.push(...wanted.map((n) => n * ten));
  return found.filter((value) => value >= low && value <= high);
}

// Whole numbers only, where there are few.
const counts = (most) => Math.min(4, most);

// Of marks whose names would stand over each other, the one that says most.
function apart(marks, toPixels) {
  const kept = [];
  for (const wanted of ["p50", "p99", "p90", "p10"]) {
    const mark = marks.find(([name]) => name === wanted);
    if (mark && kept.every((other) => Math.abs(toPixels(other[1]) - toPixels(mark[1])) > NAME_PX)) kept.push(mark);
  }
  return kept;
}

const ticks = (width) => (width < NARROW ? 4 : 8);

// bins: [[lo, hi, count]]; marks: [[name, value]].
function histogram(title, all, marks, unit) {
  const bins = all.slice(Math.max(0, all.findIndex((bin) => bin[2] > 0)));
  const widths = bins.map(([lo, hi]) => hi - lo);
  const logarithmic = widths.at(-1) > 4 * widths[0];
  const low = (value) => (logarithmic ? Math.max(value, 0.5) : value);
  const top = bins.reduce((best, bin) => (bin[2] > best[2] ? bin : best));
  const total = bins.reduce((sum, bin) => sum + bin[2], 0);
  const label = `${title}: histogram of ${count(total)}; most, ${count(top[2])}, between ${figure(top[0])} and ${figure(top[1])} ${unit}`;
  const [first, last] = [low(bins[0][0]), bins.at(-1)[1]];
  const scale = (logarithmic ? d3.scaleLog : d3.scaleLinear)([first, last], [0, 1]);
  return plot(title, label, (width) => ({
    x: {type: logarithmic ? "log" : "linear", label: unit, ticks: logarithmic ? decades(first, last, width) : Math.min(ticks(width), last - first), tickFormat: short},
    y: {label: "rows", ticks: counts(top[2]), grid: true, tickFormat: short},
    marks: [
      Plot.rectY(bins, {x1: (d) => low(d[0]), x2: (d) => low(d[1]), y: (d) => d[2], fill: "var(--plot)", insetLeft: 0.5, insetRight: 0}),
      Plot.ruleX(marks, {x: (d) => low(d[1]), stroke: "currentColor", strokeDasharray: "2,3"}),
      Plot.text(apart(marks, (value) => scale(low(value)) * (width - SIDES)), {x: (d) => low(d[1]), text: (d) => d[0], frameAnchor: "top", lineAnchor: "bottom", dy: -4, fill: "currentColor"}),
      Plot.ruleY([0]),
    ],
    marginTop: 34,
  }), table(["from", "to", "rows"], bins.map(([lo, hi, n]) => [figure(lo), figure(hi), count(n)])));
}

// series: [{name, key, dashed}] over points with x in seconds.
function course(title, points, series, unit, numbers) {
  const last = points.at(-1)[0];
  const [by, named] = last > 7200 ? [3600, "hours"] : last > 180 ? [60, "minutes"] : [1, "seconds"];
  const peaks = series.map(({name, key}) => `${name} at most ${figure(Math.max(...points.map((d) => d[key])))}`).join(", ");
  return plot(title, `${title} over ${duration(last)}: ${peaks}`, (width) => ({
    x: {label: named, ticks: ticks(width)},
    y: {label: unit, zero: true, grid: true, ticks: 4, tickFormat: short},
    marks: [
      ...series.map(({key, dashed}) => Plot.lineY(points, {x: (d) => d[0] / by, y: (d) => d[key], stroke: dashed ? "currentColor" : "var(--plot)",
        strokeDasharray: dashed ? "4,3" : null, strokeWidth: 1.6, curve: dashed ? "step-after" : "linear"})),
      Plot.ruleY([0]),
    ],
  }), numbers);
}

function arrivals(bins) {
  const step = bins.length > 1 ? bins[1][0] - bins[0][0] : 1;
  const total = bins.reduce((sum, bin) => sum + bin[1], 0);
  const span = (bins.at(-1)[0] + step - bins[0][0]);
  const clock = d3.utcFormat(span < SECONDS_S ? "%H:%M:%S" : span < CLOCK_S ? "%H:%M" : "%-d %b");
  const most = Math.max(...bins.map((bin) => bin[1]));
  return plot(`Rows as they were generated, from ${when(new Date(1000 * bins[0][0]).toISOString())} on`, `${plural(total, "row")} generated over ${duration(span)}`, (width) => ({
    marginRight: 30,
    x: {type: "utc", label: "UTC", ticks: ticks(width) / 2, tickFormat: clock},
    y: {label: "rows", grid: true, ticks: counts(most), tickFormat: short},
    marks: [
      Plot.rectY(bins, {x1: (d) => new Date(1000 * d[0]), x2: (d) => new Date(1000 * (d[0] + step)), y: (d) => d[1], fill: "var(--plot)"}),
      Plot.ruleY([0]),
    ],
  }), table(["from (UTC)", "rows", "ids"], bins.map(([at, rows, ids]) => [when(new Date(1000 * at).toISOString()), count(rows), count(ids)])));
}

function coverageCurve(curve, at) {
  return plot("Supervised ids covered by the most frequent ids", at.map(([k, s]) => `the ${count(k)} most frequent cover ${share(s)}`).join("; "), (width) => ({
    x: {type: "log", label: "ids in the draft vocabulary", ticks: decades(curve[0][0], curve.at(-1)[0], width), tickFormat: short},
    y: {label: "% covered", domain: [0, 100], grid: true, ticks: 5},
    marks: [
      Plot.lineY(curve, {x: (d) => d[0], y: (d) => 100 * d[1], stroke: "var(--plot)", strokeWidth: 1.8}),
      Plot.ruleX(at.filter(([k]) => k <= curve.at(-1)[0]), {x: (d) => d[0], stroke: "currentColor", strokeDasharray: "2,3"}),
      Plot.ruleY([0]),
    ],
  }), null);
}
