// Beside the results: what is remembered, how it went, and why a video stands where it stands.
const constraints = () => {
  const section = h("details", { class: "side", open: wide() });
  const draw = () => {
    const now = memory ?? view.constraints;
    const edit = change => {
      memory ??= structuredClone(view.constraints);
      change(memory);
    };
    section.replaceChildren(
      h("summary", {}, "What counts"),
      ...Object.entries(KINDS).map(([kind, title]) =>
        h(
          "div",
          { class: "chips" },
          h("h3", { id: `covr-${kind}` }, title),
          h(
            "ul",
            { "aria-labelledby": `covr-${kind}` },
            now[kind].map((text, place) =>
              h(
                "li",
                { class: `chip ${kind}` },
                h("input", {
                  value: text,
                  size: Math.max(text.length, 4),
                  readonly: view.over,
                  "aria-label": `${title}: change`,
                  oninput: event => {
                    edit(other => {
                      other[kind][place] = event.target.value;
                    });
                    apply.hidden = false;
                  },
                  onkeydown: event => enter(event, () => actions.say("")),
                }),
                !view.over &&
                  button(
                    "×",
                    () => {
                      edit(other => other[kind].splice(place, 1));
                      draw();
                    },
                    { "aria-label": `Remove ${text}` },
                  ),
              ),
            ),
            !view.over &&
              h(
                "li",
                {},
                button(
                  "+ add",
                  () => {
                    edit(other => other[kind].push(""));
                    draw();
                    section
                      .querySelectorAll(`.chip.${kind} input`)
                      [now[kind].length - (now === memory ? 1 : 0)].focus();
                  },
                  { class: "quiet", "aria-label": `Add to ${title}` },
                ),
              ),
          ),
        ),
      ),
      view.constraints.query && h("p", { class: "soft" }, "Looked for: ", quoted(view.constraints.query)),
    );
    const apply = h(
      "div",
      { class: "row", hidden: !memory },
      button("Search with these", () => actions.say(""), { class: "go" }),
      button(
        "Reset",
        () => {
          memory = null;
          draw();
        },
        { class: "quiet" },
      ),
    );
    section.append(apply);
  };
  draw();
  return section;
};
const past = () =>
  h(
    "details",
    { class: "side past", open: wide() },
    h("summary", {}, "How it went"),
    h(
      "ol",
      {},
      view.history.map(turn => {
        const parts = [];
        if (turn.question) parts.push(h("p", { class: "asked" }, turn.question));
        if (turn.turn === 0) parts.push(h("p", {}, view.text ? quoted(view.text) : "What resembles the clip"));
        else if (turn.action === "stop") parts.push(h("p", {}, "Found it"));
        else if (turn.feedback) parts.push(h("p", {}, quoted(turn.feedback)));
        if (turn.rejected.length)
          parts.push(h("p", {}, `Not this: ${turn.rejected.map(video => video.name).join(", ")}`));
        if (turn.edited) parts.push(h("p", {}, "Changed what counts"));
        if (turn.error) parts.push(h("p", { class: "bad" }, sentence(turn.error)));
        if (turn.shown)
          parts.push(
            h(
              "p",
              { class: "shown" },
              thumb(turn.shown),
              (!task || !turn.shown.poster) &&
                h("small", {}, h("span", { class: "name" }, named(turn.shown.name)), turn.shown.caption),
            ),
          );
        return h("li", { value: turn.turn }, h("b", {}, turn.turn === 0 ? "Start" : `Turn ${turn.turn}`), parts);
      }),
    ),
  );
const why = result => {
  const channels = [...new Set(result.why.flatMap(turn => Object.keys(turn.channels)))].sort();
  const row = turn => {
    const said = view.history[turn.turn],
      sent = Object.entries(said.sent ?? {}).filter(([, text]) => text);
    return [
      h(
        "tr",
        {},
        h("th", { scope: "row" }, turn.turn || "start"),
        h("td", {}, turn.rank ?? "–"),
        channels.map(name => h("td", {}, turn.channels[name] ?? "–")),
      ),
      (turn.cap || sent.length > 0) &&
        h(
          "tr",
          { class: "detail" },
          h(
            "td",
            { colspan: channels.length + 2 },
            sent.map(([kind, text]) => h("p", {}, h("b", {}, `${kind}: `), text)),
            turn.cap && h("p", { class: "cap" }, sentence(turn.cap)),
          ),
        ),
    ];
  };
  open(
    `Why rank ${result.rank}: ${result.name}`,
    h("p", { class: "caption" }, result.caption),
    shares(result, channelsOf()),
    result.score !== null && h("p", {}, `Score ${result.score.toFixed(3)}; comparable within this list only.`),
    h("h3", {}, "Rank at each turn, in the result and in each channel"),
    h(
      "div",
      { class: "scroll" },
      h(
        "table",
        {},
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            ["turn", "result", ...channels].map(name => h("th", { scope: "col" }, name)),
          ),
        ),
        h("tbody", {}, result.why.map(row)),
      ),
    ),
    Object.keys(result.stages).length > 0 &&
      h(
        "p",
        {},
        "In this turn: ",
        Object.entries(result.stages)
          .map(([name, rank]) => `${name} ${rank}`)
          .join(", then "),
      ),
    result.reasons.length > 0 && [
      h("h3", {}, "Compared with others"),
      h(
        "ul",
        {},
        result.reasons.map(one =>
          h(
            "li",
            {},
            h("b", {}, `${one.outcome} against ${one.against}${one.times > 1 ? `, ${one.times} times` : ""}`),
            one.reason && `, as the ${one.as}: ${one.reason}`,
          ),
        ),
      ),
    ],
  );
};
