/* The browser of samples: filters, the table of the rows that pass, and one row in detail. */
const MOST_OPTIONS = 300;

class Browser {
  constructor(samples, colours) {
    this.samples = samples;
    const fields = [...document.querySelectorAll("#filters [id]")];
    this.fields = Object.fromEntries(fields.map((field) => [field.id.slice("filter-".length), field]));
    this.fillFilters();
    this.detail = new Detail(document.getElementById("detail"), samples, colours, () => this.grid.box.focus());
    const form = document.getElementById("filters");
    this.grid = new Grid(document.getElementById("grid"), this.columns(), {
      label: "Samples",
      open: (row) => this.detail.open(row),
      close: () => this.detail.close(),
    });
    form.addEventListener("input", () => this.update());
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("reset", () => setTimeout(() => this.reset()));
    this.reset();
  }

  fillFilters() {
    const {groups, labels, gold} = this.samples;
    for (const name of ["task", "seed", "method", "part"]) {
      const values = [...new Set(groups.map((group) => group[name]))];
      fill(this.fields[name], [["", "all"], ...values.map((value) => [value, value])]);
      document.querySelector(`[data-of="${name}"]`).hidden = values.length < 2;
    }
    const counts = new Map();
    for (const label of gold) counts.set(label, (counts.get(label) ?? 0) + 1);
    const frequent = [...counts.keys()].sort((a, b) => counts.get(b) - counts.get(a)).slice(0, MOST_OPTIONS);
    const options = [["-1", "all"], ...frequent.map((label) => [label, labels[label]])];
    fill(this.fields.gold, options);
    fill(this.fields.label, options);
    const iterations = this.samples.iterations().map((t) => [t, t]);
    fill(this.fields.from, iterations);
    fill(this.fields.to, iterations);
  }

  /* Test rows of one method: its share of right rows is no mean over dev rows and over other methods. */
  reset() {
    const iterations = this.samples.iterations(), {method} = this.samples.groups[0];
    const parts = new Set(this.samples.groups.map((group) => group.part));
    this.fields.part.value = parts.has("test") ? "test" : "";
    this.fields.method.value = method;
    this.fields.from.value = iterations[0];
    this.fields.to.value = iterations[iterations.length - 1];
    this.update();
  }

  filter() {
    const {fields} = this, numbers = ["gold", "label", "from", "to"];
    const filter = Object.fromEntries(Object.entries(fields).map(([name, field]) => [name, field.value]));
    for (const name of numbers) filter[name] = Number(filter[name]);
    return {...filter, search: filter.search.toLowerCase()};
  }

  update() {
    const filter = this.filter();
    const {rows, counts} = this.samples.select(filter);
    this.from = filter.from;
    this.to = filter.to;
    this.grid.setColumns(this.columns());
    this.grid.setRows(rows);
    this.detail.hide();
    this.showCounts(rows.length, counts, filter);
  }

  showCounts(number, counts, {from, to}) {
    const share = (right) => (number ? `${(100 * right / number).toFixed(1)} %` : "none");
    const text = (count) => count.toLocaleString("en");
    document.getElementById("counts").textContent = `${text(number)} of ${text(this.samples.count)} rows. `
      + `From T = ${from} to T = ${to}: ${text(counts.fixed)} fixed, ${text(counts.broken)} broken; `
      + `right ${share(counts.right + counts.broken)}, then ${share(counts.right + counts.fixed)}.`;
  }

  columns() {
    const {samples} = this, from = this.from, to = this.to;
    const label = (number) => (number < 0 ? "" : samples.labels[number]);
    const percent = (share) => (Number.isNaN(share) ? "" : `${(100 * share).toFixed(1)} %`);
    const text = (title, width, grow, get) => ({title, width, grow, text: get, value: get});
    const several = (name) => new Set(samples.groups.map((group) => group[name])).size > 1;
    const ofGroup = [["task", "Task", 5], ["seed", "Seed", 4], ["method", "Method", 8], ["part", "Rows", 4]]
      .filter(([name]) => several(name))
      .map(([name, title, width]) => text(title, width, 0.5, (row) => samples.groupOf(row)[name]));
    const at = (t) => ({
      ...text(`T = ${t}`, 7.5, 1, (row) => label(samples.labelAt(row, t))),
      mark: (row) => (samples.labelAt(row, t) === samples.gold[row] ? "right" : "wrong"),
    });
    const share = (t) => ({
      title: `P(true), T = ${t}`, width: 8.5, grow: 0, mark: () => "number",
      text: (row) => percent(samples.trueShareAt(row, t)), value: (row) => samples.trueShareAt(row, t),
    });
    const shown = (row) => samples.textOf(row) || samples.placeOf(row);
    const change = (row) => samples.changeOf(row, from, to);
    return [
      text("Input", 14, 5, shown), ...ofGroup, text("True label", 7, 1, (row) => label(samples.gold[row])),
      at(from), at(to), share(from), share(to), {...text("Change", 5.5, 0, change), mark: change},
    ];
  }
}

function fill(select, options) {
  select.replaceChildren(...options.map(([value, text]) => make("option", {value}, String(text))));
}
