"use strict";
// Search and filters of the index: a cell is shown where every word stands in its text, and every
// select has "" or a value that the cell has. What is chosen stands in the address, so that it can
// be sent and the back button finds it.
(() => {
  const form = document.querySelector("form");
  const body = document.querySelector(".cells tbody");
  const rows = [...body.rows];
  const count = document.getElementById("count");
  const fields = [...form.elements].filter((field) => field.name);
  const values = (row, name) => (row.getAttribute("data-" + name) || "").split("|");

  function fits(row) {
    return fields.every(({ name, value }) => {
      if (!value || name === "sort") return true;
      if (name === "find") return value.toLowerCase().split(/\s+/).every((w) => values(row, "find")[0].includes(w));
      if (name === "since") return Number(values(row, "year")[0]) >= Number(value);
      if (name === "parameters") return values(row, name)[0] !== "" && Number(values(row, name)[0]) <= Number(value);
      return values(row, name).includes(value);
    });
  }

  function sort(by) {
    const key = (row) => values(row, by)[0];
    const compare = by === "name" ? (a, b) => key(a).localeCompare(key(b))
      : (a, b) => (Number(key(a)) || Infinity) - (Number(key(b)) || Infinity) || values(a, "name")[0].localeCompare(values(b, "name")[0]);
    body.append(...rows.sort(compare));
  }

  function show() {
    let shown = 0;
    for (const row of rows) {
      row.hidden = !fits(row);
      shown += row.hidden ? 0 : 1;
    }
    count.textContent = shown === rows.length ? `${rows.length} cells` : `${shown} of ${rows.length} cells`;
  }

  function changed() {
    sort(form.elements.sort.value);
    show();
    const chosen = new URLSearchParams(fields.filter((f) => f.value && !(f.name === "sort" && f.value === "name"))
      .map((f) => [f.name, f.value]));
    history.replaceState(null, "", chosen.size ? "#" + chosen : location.pathname + location.search);
  }

  function fromAddress() {
    const chosen = new URLSearchParams(location.hash.slice(1));
    for (const field of fields) field.value = chosen.get(field.name) || (field.name === "sort" ? "name" : "");
    sort(form.elements.sort.value || (form.elements.sort.value = "name"));
    show();
  }

  form.hidden = false;
  form.addEventListener("input", changed);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(changed));
  addEventListener("hashchange", fromAddress);
  addEventListener("keydown", (event) => {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName);
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      form.elements.find.focus();
    } else if (event.key === "Escape" && document.activeElement === form.elements.find) {
      form.elements.find.value = "";
      changed();
    }
  });
  fromAddress();
})();
