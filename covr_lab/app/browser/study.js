// The study: consent, one task after the other, pause.
const person = () => store.get("covr_participant");
const consent = (text = "") => {
  const id = h("input", { id: "covr-id", required: true, maxlength: 100, autocomplete: "off", value: text });
  const agree = h("input", { type: "checkbox", id: "covr-agree", required: true });
  show(
    h(
      "section",
      { class: "consent" },
      h("h1", {}, "Study: finding videos by talking"),
      h(
        "p",
        { class: "lead" },
        "You will see a clip to start from, what should change in it, and the video that is wanted. " +
          "Say in your own words how the system's best match should change until it is the wanted video.",
      ),
      h(
        "ul",
        {},
        h(
          "li",
          {},
          `Up to ${study.each} tasks, each with at most ${count(study.turns, "turn")} of feedback. ` +
            "You can pause at any time and go on later in this browser.",
        ),
        h(
          "li",
          {},
          "Recorded are what you write and press, the results you saw, and when; under your participant id, " +
            "on the disk of this server, nowhere else.",
        ),
        h("li", {}, "Write nothing about yourself or others. You may stop whenever you like, without a reason."),
      ),
      h(
        "form",
        {
          onsubmit: event => {
            event.preventDefault();
            act("Preparing your task", async () => {
              const given = await call("study/consent", { participant: id.value });
              store.set("covr_participant", id.value);
              assign(given);
            });
          },
        },
        h("label", { for: "covr-id" }, "Participant id"),
        id,
        h("label", { class: "check", for: "covr-agree" }, agree, "I have read this and take part of my own will."),
        h("button", { class: "go" }, "Agree and begin"),
      ),
    ),
  );
};
const resume = () =>
  act("Fetching your task", async () => {
    try {
      assign(await call(`study/task?${new URLSearchParams({ participant: person() })}`));
    } catch (error) {
      consent(person());
      throw error;
    }
  });
const assign = given => {
  task = given;
  view = given.search ?? null;
  memory = null;
  if (given.done) {
    show(
      h(
        "section",
        { class: "consent" },
        h("h1", {}, "That was the last task"),
        h("p", { class: "lead" }, "Thank you for taking part. You can close this page."),
        button("Another participant", () => consent()),
      ),
    );
    return;
  }
  const top = view.results[0],
    mine = more => ({ participant: person(), instance: given.instance, ...more });
  const times = () => ({ ...timing, sent: seconds() });
  const say = () =>
    act("Searching", async () => {
      if (!text.value.trim()) throw new Problem("Write what should change, or answer the question.");
      assign(await call("study/feedback", mine({ text: text.value, turn: view.turn, timing: times() })));
    });
  const next = (path, more = {}) =>
    act("Preparing the next task", async () => assign(await call(`study/${path}`, mine(more))));
  const text = box("covr-say", view.question ? "Your answer, or a change" : "What should change?", say);
  show(
    h(
      "section",
      { class: "task" },
      h(
        "header",
        {},
        h("h1", {}, `Task ${given.number} of ${given.of}`),
        h(
          "p",
          { class: "soft" },
          given.left ? `${count(given.left, "turn")} of feedback left` : "No feedback left: say whether it was found.",
        ),
        button("Pause", pause),
      ),
      h(
        "div",
        { class: "pair" },
        h(
          "section",
          {},
          h("h2", {}, "Start from"),
          view.reference ? picture(view.reference, "the first clip") : h("p", { class: "soft" }, "No clip"),
          h("p", { class: "quote" }, quoted(view.text)),
        ),
        h(
          "section",
          {},
          h("h2", {}, "Best match now"),
          top ? picture(top, "the best match") : h("p", { class: "soft" }, "Nothing yet"),
          h(
            "div",
            { class: "row" },
            top && button("Found it", () => next("found", { video: top.id, turn: view.turn, timing: times() }), { class: "go" }),
            button(given.left ? "Give up on this one" : "Not found", () => next("leave"), { class: "quiet" }),
          ),
        ),
      ),
      given.left > 0 &&
        h(
          "form",
          {
            class: "say",
            onsubmit: event => {
              event.preventDefault();
              say();
            },
          },
          view.question && h("p", { class: "question" }, view.question),
          h("div", { class: "row" }, text, h("button", { class: "go" }, "Send")),
        ),
      past(),
      h(
        "section",
        { class: "wanted", "aria-label": "The wanted video" },
        h("h2", {}, "The wanted video"),
        h("p", { class: "soft" }, "Only you see it; the system does not."),
        picture(given.target, "the wanted video"),
      ),
    ),
  );
};
const pause = () => {
  show(
    h(
      "section",
      { class: "consent" },
      h("h1", {}, "Paused"),
      h("p", { class: "lead" }, "Your work is kept. You can close this page and come back in this browser."),
      button("Go on", resume, { class: "go" }),
    ),
  );
};
