"use strict";
(() => {
  // Tables sort by their heads: up, down, and back to the order of the report.
  const valueOf = (row, column) => {
    const cell = row.cells[column];
    const text = cell === undefined ? "" : (cell.dataset.sort ?? cell.textContent).trim();
    return text;
  };
  const order = (rows, column, sign) => {
    const keyed = rows.map((row, place) => [valueOf(row, column), place, row]);
    const numeric = keyed.every(([text]) => text === "" || !Number.isNaN(Number(text)));
    keyed.sort(([a, i], [b, j]) => {
      if (a === "" || b === "") return (a === "") - (b === "") || i - j;
      const difference = numeric ? Number(a) - Number(b) : a.localeCompare(b, "en", { numeric: true });
      return sign * difference || i - j;
    });
    return keyed.map(([, , row]) => row);
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    const body = table.tBodies[0];
    const original = [...body.rows];
    const heads = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const before = head.getAttribute("aria-sort");
        const next = { ascending: "descending", descending: null }[before];
        const state = next === undefined ? "ascending" : next;
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        table.classList.toggle("sorted", state !== null);
        if (state === null) {
          body.append(...original);
          return;
        }
        head.setAttribute("aria-sort", state);
        body.append(...order(original, column, state === "ascending" ? 1 : -1));
      });
    });
  }
  // A block of text is copied, or selected where copying is not allowed.
  for (const button of document.querySelectorAll("button.copy")) {
    const block = document.getElementById(button.dataset.copies);
    const said = button.textContent;
    button.hidden = false;
    button.addEventListener("click", async () => {
      getSelection().selectAllChildren(block);
      try {
        await navigator.clipboard.writeText(block.textContent);
        button.textContent = "Copied";
        setTimeout(() => { button.textContent = said; }, 2000);
      } catch {
        button.textContent = "Selected: copy with the keyboard";
      }
    });
  }
  // What is folded away on the screen is printed.
  const folded = () => [...document.querySelectorAll("details:not([open])")];
  let opened = [];
  addEventListener("beforeprint", () => { opened = folded(); opened.forEach((one) => { one.open = true; }); });
  addEventListener("afterprint", () => { opened.forEach((one) => { one.open = false; }); opened = []; });
})();
