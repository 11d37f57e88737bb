/* One row of samples: its text, and every candidate's score and share over T. */
class Detail {
  constructor(panel, samples, colours, onClose) {
    Object.assign(this, {panel, samples, colours, onClose, plot: null});
    panel.addEventListener("keydown", (event) => { if (event.key === "Escape") this.close(); });
  }

  hide() {
    this.clear();
    this.panel.hidden = true;
  }

  close() {
    this.hide();
    this.onClose();
  }

  clear() {
    if (this.plot) {
      plots.delete(this.plot);
      this.plot.destroy();
      this.plot = null;
    }
    this.panel.replaceChildren();
  }

  open(row) {
    const samples = this.samples, group = samples.groupOf(row);
    this.clear();
    this.panel.hidden = false;
    const close = make("button", {type: "button", class: "close"}, "Close");
    close.addEventListener("click", () => this.close());
    const part = group.part === "dev" ? "dev row" : "";
    const facts = [group.task, group.seed && `seed ${group.seed}`, group.method, part, samples.placeOf(row)];
    const holder = make("div", {class: "plot"});
    this.panel.append(
      close,
      make("h3", {}, `True label: ${samples.labels[samples.gold[row]]}`),
      make("p", {class: "note"}, facts.filter(Boolean).join(" · ")),
      make("p", {class: "text"}, samples.textOf(row) || "(the text was not kept)"),
      holder,
      this.table(row),
      make("p", {class: "note"}, "Scores in nats, and each candidate's share of the probability."),
    );
    const chart = this.chart(row);
    if (chart.iterations.length > 1) this.plot = drawChart(holder, chart, this.colours, 190);
    else holder.remove();
    this.panel.scrollIntoView({block: "nearest"});
  }

  names(row) {
    return this.samples.candidates[this.samples.set[row]].map((number) => this.samples.labels[number]);
  }

  /* The candidates worth a line: at most as many as there are colours, the best at any T first. */
  chart(row) {
    const {iterations} = this.samples.groupOf(row);
    const shares = iterations.map((t, place) => this.samples.sharesAt(row, place));
    const series = this.names(row).map((label, number) => ({
      label, low: [], high: [], is_dashed: false, number,
      values: shares.map((of) => 100 * of[number]),
      notes: shares.map((of) => `${(100 * of[number]).toFixed(1)} %`),
    }));
    const best = (line) => Math.max(...line.values);
    const drawn = series.sort((a, b) => best(b) - best(a)).slice(0, this.colours.length);
    drawn.sort((a, b) => a.number - b.number).forEach((line, number) => { line.colour = number; });
    return {title: "Candidates", unit: "share (%)", iterations, level: null, series: drawn};
  }

  table(row) {
    const samples = this.samples, {iterations} = samples.groupOf(row), gold = samples.labels[samples.gold[row]];
    const scores = iterations.map((t, place) => samples.scoresAt(row, place));
    const shares = iterations.map((t, place) => samples.sharesAt(row, place));
    const chosen = iterations.map((t) => samples.labels[samples.labelAt(row, t)]);
    const titles = ["candidate", ...iterations.map((t) => `T = ${t}`)];
    const head = make("tr", {}, ...titles.map((title) => make("th", {scope: "col"}, title)));
    const body = this.names(row).map((name, number) => make("tr", {},
      make("th", {scope: "row"}, name === gold ? `${name} (true)` : name),
      ...iterations.map((t, place) => make("td", {class: chosen[place] === name ? "chosen" : null},
        scores[place][number].toFixed(3), make("small", {}, ` ${(100 * shares[place][number]).toFixed(1)} %`)))));
    const table = make("table", {}, make("thead", {}, head), make("tbody", {}, ...body));
    return make("div", {class: "wide", tabindex: "0", role: "group", "aria-label": "Scores over T"}, table);
  }
}
