// Ways into the page: addresses, keys, and the frame that holds it all.
const route = () => {
  if (busy) {
    setTimeout(route, 100); // one thing after the other
    return;
  }
  const [place, id] = location.hash.slice(1).split("/");
  fault.hidden = true;
  if (panel.open) panel.close();
  for (const link of nav.querySelectorAll("a"))
    link.ariaCurrent = (link.hash === "#study") === (place === "study") ? "page" : null;
  if (place === "study" && study) {
    if (person()) resume();
    else consent();
    return;
  }
  task = null;
  if (place !== "search") {
    begin();
    return;
  }
  act("Fetching the search", async () => {
    try {
      accept(await call(`sessions/${encodeURIComponent(id)}`));
    } catch (error) {
      begin();
      throw error;
    }
  });
};
const shortcut = event => {
  const typing = event.target.closest?.("input, textarea, dialog");
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const card = document.activeElement.closest?.(".card"),
    names = { f: "found", m: "more", n: "not", w: "why", u: "undo" };
  const wanted = names[event.key] === "undo" ? element : card;
  if (event.key === "?") help();
  else if (event.key === "/") element.querySelector("#covr-say, #covr-words")?.focus();
  else if (/^[1-9]$/.test(event.key)) element.querySelector(`.card[data-rank="${event.key}"] .screen`)?.focus();
  else if (names[event.key] && wanted) wanted.querySelector(`[data-does="${names[event.key]}"]`)?.click();
  else return;
  event.preventDefault();
};
const nav = h("nav", {}, study && [h("a", { href: "#" }, "Search"), h("a", { href: "#study" }, "Study")]);
const app = h(
  "div",
  { class: "covr" },
  h(
    "header",
    { class: "top" },
    h("a", { class: "brand", href: "#" }, "covr_lab"),
    nav,
    h("span", { class: "gap" }),
    button("Keys", help, { class: "quiet" }),
    tint,
    bar,
  ),
  notes.length > 0 &&
    h(
      "details",
      { class: "caution", open: wide() },
      h("summary", {}, "What to know about these results"),
      notes.map(note => h("p", {}, sentence(note))),
    ),
  state,
  fault,
  body,
  panel,
);
element.replaceChildren(app);
paint(store.get("covr_scheme") || "auto");
addEventListener("hashchange", route);
addEventListener("keydown", shortcut);
route();
