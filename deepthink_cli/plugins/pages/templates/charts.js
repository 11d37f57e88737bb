/* Curves over T, drawn by uPlot: values under the pointer, or with the arrow keys, stand in the legend. */
const DASHES = [[], [7, 3], [2, 3]];
const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];  // between ticks of T
const plots = new Set();

function seriesOf(line, colours) {
  const colour = () => lineColour(line.colour, colours);
  return {
    label: line.label,
    stroke: colour,
    width: line.is_dashed ? 1.2 : 2,
    dash: line.is_dashed ? [4, 3] : DASHES[Math.floor(line.colour / colours.length) % DASHES.length],
    points: {show: !line.is_dashed, size: 5, fill: colour},
    spanGaps: true,
    value: (plot, value, series, place) => (place === null ? "" : line.notes[place]),
  };
}

/* Black lines are white in the dark. */
function lineColour(number, colours) {
  const colour = colours[number % colours.length];
  return colour === "#000000" ? colourOf("--ink") : colour;
}

function drawBands(plot, lines, colours) {
  lines.forEach((line, number) => {
    if (!line.low.length || !plot.series[number + 1].show) return;
    const known = line.low.map((value, place) => place).filter((place) => line.low[place] !== null);
    const x = (place) => plot.valToPos(plot.data[0][place], "x", true);
    plot.ctx.save();
    plot.ctx.globalAlpha = 0.13;
    plot.ctx.fillStyle = lineColour(line.colour, colours);
    plot.ctx.beginPath();
    known.forEach((place) => plot.ctx.lineTo(x(place), plot.valToPos(line.high[place], "y", true)));
    known.reverse().forEach((place) => plot.ctx.lineTo(x(place), plot.valToPos(line.low[place], "y", true)));
    plot.ctx.fill();
    plot.ctx.restore();
  });
}

function drawLevel(plot, level) {
  if (level === null) return;
  const y = plot.valToPos(level, "y", true);
  plot.ctx.save();
  plot.ctx.strokeStyle = colourOf("--soft");
  plot.ctx.setLineDash([8, 3, 2, 3]);
  plot.ctx.beginPath();
  plot.ctx.moveTo(plot.bbox.left, y);
  plot.ctx.lineTo(plot.bbox.left + plot.bbox.width, y);
  plot.ctx.stroke();
  plot.ctx.restore();
}

function rangeOf(chart) {
  const values = chart.series.flatMap((line) => [...line.values, ...line.low, ...line.high]);
  const known = [...values, chart.level].filter((value) => value !== null);
  const low = Math.min(...known), high = Math.max(...known), margin = (high - low || 1) * 0.06;
  return [low - margin, high + margin];
}

function axisOf(label, space) {
  const ink = () => colourOf("--soft"), grid = {stroke: () => colourOf("--line"), width: 1};
  const fonts = {labelFont: "12px system-ui", font: "11px system-ui"};
  return {label, labelSize: 18, ...fonts, stroke: ink, grid, ticks: grid, space};
}

/* Draw a chart into an element; returns the plot. */
function drawChart(holder, chart, colours, height) {
  const drawBehind = (plot) => {
    drawLevel(plot, chart.level);
    drawBands(plot, chart.series, colours);
  };
  const plot = new uPlot({
    width: Math.max(240, holder.clientWidth),
    height,
    scales: {x: {time: false, range: edgesOf(chart.iterations)}, y: {range: () => rangeOf(chart)}},
    axes: [{...axisOf("iterations T", 34), incrs: STEPS, size: 28}, {...axisOf(chart.unit, 26), size: 44}],
    series: [{label: "T", value: (_, value) => value ?? ""}, ...chart.series.map((line) => seriesOf(line, colours))],
    padding: [8, 14, 0, 0],
    legend: {live: true, markers: {width: 2, dash: (_, n) => (chart.series[n - 1]?.is_dashed ? "dashed" : "solid")}},
    cursor: {drag: {x: false, y: false}, points: {size: 8}},
    hooks: {ready: [showLast], drawAxes: [drawBehind]},
  }, [chart.iterations, ...chart.series.map((line) => line.values)], holder);
  plots.add(plot);
  moveByKeys(holder, plot, chart);
  new ResizeObserver(() => plot.setSize({width: Math.max(240, holder.clientWidth), height})).observe(holder);
  return plot;
}

function edgesOf(iterations) {
  const first = iterations[0], last = iterations[iterations.length - 1], margin = (last - first || 1) * 0.04;
  return () => [first - margin, last + margin];
}

function showLast(plot) {
  plot.setLegend({idx: plot.data[0].length - 1});
}

function moveByKeys(holder, plot, chart) {
  holder.tabIndex = 0;
  holder.setAttribute("role", "group");
  holder.setAttribute("aria-label", `${chart.title}: ${chart.unit} over the iterations T. Arrow keys show values.`);
  for (const name of [...holder.querySelectorAll(".u-series th")].slice(1)) {
    name.tabIndex = 0;
    name.addEventListener("keydown", (event) => { if (event.key === "Enter") name.click(); });
  }
  holder.addEventListener("keydown", (event) => {
    const step = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (!step) return;
    const place = Math.min(Math.max((plot.cursor.idx ?? plot.data[0].length - 1) + step, 0), plot.data[0].length - 1);
    plot.setCursor({left: plot.valToPos(plot.data[0][place], "x"), top: 10});
    event.preventDefault();
  });
  holder.addEventListener("mouseleave", () => showLast(plot));
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => plots.forEach((plot) => plot.redraw()));
