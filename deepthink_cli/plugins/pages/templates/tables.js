/* Tables of the document sort by a click on a heading: by numbers if all cells of the column begin with one,
   otherwise by the alphabet. A third click restores the order. */
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
  const texts = new Map(rows.map((row) => [row, row.cells[column].textContent.trim()]));
  const numbers = new Map(rows.map((row) => [row, parseFloat(texts.get(row).replace(/^[<>=\s]+/, ""))]));
  const isNumeric = rows.every((row) => !texts.get(row) || !Number.isNaN(numbers.get(row)));
  const keys = isNumeric ? numbers : texts;
  return [...rows].sort((a, b) => compared(keys.get(a), keys.get(b), falling));
}
