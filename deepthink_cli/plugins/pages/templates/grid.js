/* A table of many rows: only those in view are in the document. Columns are {title, width, grow, text(row), value(row),
   mark(row)}: `width` is the least one in rem, `grow` its part of the rest; `value` sorts, `mark` names a style. */
const ROW_HEIGHT = 34;

class Grid {
  constructor(holder, columns, {label, open, close}) {
    Object.assign(this, {holder, columns, open, close, rows: new Uint32Array(), active: 0, sorted: null});
    this.head = make("div", {role: "row", class: "grid-head"});
    this.space = make("div", {role: "rowgroup", class: "grid-space"});
    const group = make("div", {role: "rowgroup", class: "grid-heads"}, this.head);
    this.box = make("div", {role: "grid", class: "grid-box", tabindex: "0", "aria-label": label}, group, this.space);
    holder.append(this.box);
    this.box.addEventListener("scroll", () => this.draw(), {passive: true});
    this.box.addEventListener("keydown", (event) => this.onKey(event));
    this.space.addEventListener("click", (event) => this.onClick(event));
    new ResizeObserver(() => this.draw()).observe(this.box);
    this.setColumns(columns);
  }

  setColumns(columns) {
    this.columns = columns;
    const widths = columns.map(({width, grow}) => (grow ? `minmax(${width}rem, ${grow}fr)` : `${width}rem`));
    this.box.style.setProperty("--columns", widths.join(" "));
    this.box.style.setProperty("--least", `${columns.reduce((sum, column) => sum + column.width, 0)}rem`);
    this.head.replaceChildren(...columns.map((column, number) => {
      const button = make("button", {type: "button"}, column.title);
      button.addEventListener("click", () => this.sortBy(number));
      return make("div", {role: "columnheader", "aria-sort": this.direction(number)}, button);
    }));
  }

  direction(number) {
    return this.sorted?.number === number ? (this.sorted.falling ? "descending" : "ascending") : "none";
  }

  setRows(rows) {
    this.original = rows;
    this.active = 0;
    this.box.setAttribute("aria-rowcount", rows.length + 1);
    this.space.style.height = `${rows.length * ROW_HEIGHT}px`;
    this.box.scrollTop = 0;
    this.applySort();
    this.draw();
  }

  sortBy(number) {
    const again = this.sorted?.number === number;
    if (again && this.sorted.falling) this.sorted = null;
    else this.sorted = {number, falling: again};
    this.active = 0;
    this.box.scrollTop = 0;
    [...this.head.children].forEach((cell, n) => cell.setAttribute("aria-sort", this.direction(n)));
    this.applySort();
    this.draw();
  }

  applySort() {
    this.rows = this.original;
    if (!this.sorted) return;
    const {number, falling} = this.sorted, {value} = this.columns[number];
    const keys = Array.from(this.rows, value), order = Uint32Array.from(keys, (_, place) => place);
    order.sort((a, b) => compared(keys[a], keys[b], falling) || a - b);
    this.rows = Uint32Array.from(order, (place) => this.original[place]);
  }

  draw() {
    const top = this.box.scrollTop, height = this.box.clientHeight || 600;
    const first = Math.max(0, Math.floor(top / ROW_HEIGHT) - 4);
    const last = Math.min(this.rows.length, Math.ceil((top + height) / ROW_HEIGHT) + 4);
    const drawn = [];
    for (let place = first; place < last; place++) drawn.push(this.drawRow(place));
    this.space.replaceChildren(...drawn);
    const shown = this.active >= first && this.active < last;
    if (shown) this.box.setAttribute("aria-activedescendant", `row-${this.active}`);
    else this.box.removeAttribute("aria-activedescendant");
  }

  drawRow(place) {
    const row = this.rows[place];
    const cells = this.columns.map((column) =>
      make("div", {role: "gridcell", class: column.mark?.(row)}, column.text(row)));
    const element = make("div", {
      role: "row", id: `row-${place}`, class: "grid-row", "aria-rowindex": place + 2,
      "aria-selected": String(place === this.active),
    }, ...cells);
    element.style.top = `${place * ROW_HEIGHT}px`;
    return element;
  }

  onClick(event) {
    const element = event.target.closest(".grid-row");
    if (element) this.choose(Number(element.id.slice("row-".length)));
  }

  choose(place) {
    this.active = place;
    this.draw();
    this.open(this.rows[place]);
  }

  onKey(event) {
    const page = Math.max(1, Math.floor(this.box.clientHeight / ROW_HEIGHT) - 2);
    const steps = {ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity};
    if (event.target !== this.box) return;
    if (event.key === "Enter" && this.rows.length) this.choose(this.active);
    else if (event.key === "Escape") this.close();
    else if (event.key in steps && this.rows.length) this.moveTo(this.active + steps[event.key]);
    else return;
    event.preventDefault();
  }

  moveTo(place) {
    this.active = Math.min(Math.max(place, 0), this.rows.length - 1);
    const top = this.active * ROW_HEIGHT, view = this.box.clientHeight - this.head.offsetHeight;
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    else if (top + ROW_HEIGHT > this.box.scrollTop + view) this.box.scrollTop = top + ROW_HEIGHT - view;
    this.draw();
    if (!document.getElementById("detail").hidden) this.open(this.rows[this.active]);
  }
}

/* Numbers by size, texts by the alphabet; NaN is last, also if the order falls. */
function compared(a, b, falling) {
  if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
  const order = typeof a === "string" ? (a > b) - (a < b) : a - b;
  return falling ? -order : order;
}
