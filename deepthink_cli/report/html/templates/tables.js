/* Tables of the document sort by a click on a heading: numbers by size, other texts by the alphabet. */
function makeSortable(table) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0], original = [...body.rows];
  heads.forEach((head, column) => {
    const button = make("button", {type: "button"}, head.textContent);
    head.replaceChildren(button);
    head.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => {
      const before = head.getAttribute("aria-sort");
      const now = {none: "ascending", ascending: "descending", descending: "none"}[before];
      heads.forEach((other) => other.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", now);
      body.append(...(now === "none" ? original : sortedRows(original, column, now === "descending")));
    });
  });
}

function sortedRows(rows, column, falling) {
  const keys = new Map(rows.map((row) => [row, sortKey(row.cells[column].textContent)]));
  return [...rows].sort((a, b) => (falling ? -1 : 1) * comparedKeys(keys.get(a), keys.get(b)));
}

function sortKey(text) {
  const number = parseFloat(text.replace(/^[<>=\s]+/, ""));
  return {number, text: text.toLowerCase()};
}

function comparedKeys(a, b) {
  const both = !Number.isNaN(a.number) && !Number.isNaN(b.number);
  return both ? a.number - b.number : Number.isNaN(a.number) - Number.isNaN(b.number) || compared(a.text, b.text);
}
