// The table of kernels: headings sort, a field searches. Without script it is the same table, costliest first.
function startTables() {
  const table = document.getElementById("kernel-table");
  if (!table) return;
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));

  const key = (row, i) => {
    const cell = row.cells[i];
    if (cell.dataset.value === undefined) return cell.textContent.toLowerCase();
    return cell.dataset.value === "" ? null : Number(cell.dataset.value);
  };
  // Unknown values stay last in either direction; equal rows keep the order they have.
  const sort = (i, way) => {
    const keys = new Map(rows.map((row) => [row, key(row, i)]));
    rows.sort((a, b) => {
      const [x, y] = [keys.get(a), keys.get(b)];
      if (x === null || y === null) return (x === null) - (y === null);
      return way * (typeof x === "number" ? x - y : x < y ? -1 : x > y ? 1 : 0);
    });
    body.append(...rows);
  };
  [...table.tHead.rows[0].cells].forEach((head, i) => {
    const button = element("button", head.textContent);
    button.type = "button";
    head.replaceChildren(button);
    head.dataset.sorts = "";
    button.addEventListener("click", () => {
      const figures = head.classList.contains("n");
      const now = head.getAttribute("aria-sort");
      const next = now ? (now === "ascending" ? "descending" : "ascending") : figures ? "descending" : "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", next);
      sort(i, next === "ascending" ? 1 : -1);
    });
  });

  const field = document.getElementById("kernel-search");
  const count = document.getElementById("kernel-count");
  field.closest(".controls").hidden = false;
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      row.hidden = !words.every((word) => texts.get(row).includes(word));
      shown += !row.hidden;
    }
    count.textContent = `${shown} of ${rows.length}`;
  });
}
