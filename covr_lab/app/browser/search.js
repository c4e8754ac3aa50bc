// A search: its results, and what a person may do with them.
const accept = said => {
  view = said;
  memory = null;
  if (location.hash !== `#search/${said.id}`) history.pushState(null, "", `#search/${said.id}`);
  results();
  scrollTo(0, 0);
  write();
};
const at = (action, more = {}) => call(`sessions/${view.id}/${action}`, { turn: view.turn, ...more });
const actions = {
  found: video => act("Noting it", async () => accept(await at("found", { video }))),
  more: video =>
    act("Searching", async () => {
      const said = await call(`sessions/${view.id}/more_like`, { video });
      go(`#search/${said.id}`);
    }),
  not: video => act("Searching", async () => accept(await at("not_this", { video }))),
  undo: () => act("Going back", async () => accept(await at("undo"))),
  say: text =>
    act("Searching", async () => {
      const edited = memory && tidy(memory);
      if (!text.trim() && !edited) throw new Problem("Write what should change, or answer the question.");
      accept(await at("feedback", { text, memory: edited, timing: { ...timing, sent: seconds() } }));
    }),
};
const tidy = edited => ({
  ...Object.fromEntries(Object.keys(KINDS).map(kind => [kind, edited[kind].map(one => one.trim()).filter(Boolean)])),
  query: "",
});

const movement = result => {
  if (view.turn === 0 || view.over) return null;
  if (result.new) return h("span", { class: "move new", "aria-label": "new among the results" }, "new");
  const by = result.before - result.rank;
  if (!by) return h("span", { class: "move", "aria-label": "same rank as before" }, "=");
  const way = by > 0 ? "up" : "down";
  return h(
    "span",
    { class: `move ${way}`, "aria-label": `${way} ${Math.abs(by)} since the last turn` },
    `${MOVES[way]} ${Math.abs(by)}`,
  );
};
const channelsOf = () => [...new Set(view.results.flatMap(result => Object.keys(result.shares)))].sort();
const shares = (result, names) => {
  const parts = names.filter(name => result.shares[name]);
  if (!parts.length) return null;
  const text = parts.map(name => `${name} ${percent(result.shares[name])}`).join(" · ");
  return h(
    "div",
    { class: "shares", title: "Share of each channel in this place" },
    h(
      "div",
      { class: "stack", "aria-hidden": "true" },
      parts.map(name => {
        const part = h("i", { class: `c${names.indexOf(name) % 6}` });
        part.style.flexGrow = result.shares[name];
        return part;
      }),
    ),
    h("small", {}, text),
  );
};
const card = (result, names) => {
  const does = (text, name, more = {}) =>
    button(text, () => actions[name](result.id), {
      "data-does": name,
      "aria-label": `${text}: ${result.name}`,
      ...more,
    });
  return h(
    "article",
    {
      class: result.rank === 1 ? "card first" : "card",
      "data-rank": result.rank,
      "data-id": result.id,
      "aria-label": `Result ${result.rank}: ${result.name}`,
    },
    h(
      "div",
      { class: "picture" },
      player(result, `result ${result.rank}: `),
      h("span", { class: "rank" }, result.rank),
      movement(result),
    ),
    h(
      "div",
      { class: "about" },
      h("h3", { class: "name" }, named(result.name)),
      result.media && result.caption && h("p", { class: "caption", title: result.caption }, result.caption),
      result.rank === 1 && !view.over && h("p", { class: "hint" }, "Best match so far: say what is wrong with it."),
      shares(result, names),
    ),
    h(
      "div",
      { class: "acts" },
      !view.over && does("Found it", "found"),
      does("More like this", "more"),
      !view.over && does("Not this", "not"),
      button("Why?", () => why(result), { "data-does": "why", "aria-label": `Why ${result.name} is here` }),
    ),
  );
};
const results = () => {
  const names = channelsOf(),
    said = view.notes.map(sentence),
    last = view.history.at(-1);
  if (last.error) said.push(sentence(`this turn failed, the order is that of the turn before: ${last.error}`));
  const scope =
    view.total > view.results.length
      ? `The best ${view.results.length} of ${count(view.total, "video")}`
      : count(view.total, "video");
  const ended = view.over && view.results.find(result => result.id === view.found);
  const found = ended ? `${ended.name}, at rank ${ended.rank}` : view.found;
  show(
    h(
      "div",
      { class: "search" },
      request(),
      h(
        "section",
        { class: "results", "aria-label": "Results" },
        h(
          "header",
          {},
          h("h1", {}, view.over ? "Found" : "Results"),
          button("Undo", actions.undo, {
            "data-does": "undo",
            disabled: view.turn === 0,
            title: "Take the last turn back",
          }),
          h(
            "p",
            { class: "soft" },
            view.over
              ? `${found}, after ${count(view.turn - 1, "turn")} of feedback.`
              : `${scope}, best first. There is always a list: it need not hold what you want.`,
          ),
        ),
        said.length > 0 &&
          h(
            "ul",
            { class: "notes" },
            said.map(note => h("li", {}, note)),
          ),
        h(
          "div",
          { class: "cards" },
          view.results.map(result => card(result, names)),
        ),
      ),
      h("aside", {}, constraints(), past()),
      view.over ? ending() : composer(),
    ),
  );
};
const request = () =>
  h(
    "section",
    { class: "request", "aria-label": "Your request" },
    h("h2", {}, "Your request"),
    view.reference && mini(view.reference, "Start from"),
    view.text && h("p", { class: "quote" }, quoted(view.text)),
    h(
      "div",
      { class: "row" },
      button("New search", () => go("#")),
      view.parent && button("Search before", () => go(`#search/${view.parent}`)),
    ),
  );
const ending = () =>
  h(
    "div",
    { class: "say over" },
    h("p", {}, "This search is over."),
    button("New search", () => go("#"), { class: "go" }),
  );
const composer = () => {
  const text = box("covr-say", view.question ? "Your answer, or a change" : "What should change?", () =>
    actions.say(text.value),
  );
  return h(
    "form",
    {
      class: "say",
      onsubmit: event => {
        event.preventDefault();
        actions.say(text.value);
      },
    },
    view.question && h("p", { class: "question" }, view.question),
    h("div", { class: "row" }, text, h("button", { class: "go" }, "Send")),
  );
};
const box = (id, placeholder, work) =>
  h("textarea", {
    id,
    rows: 1,
    maxlength: 2000,
    placeholder,
    "aria-label": placeholder,
    oninput: () => {
      timing.first_key ??= seconds();
    },
    onkeydown: event => enter(event, work),
  });
