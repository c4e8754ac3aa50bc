// The page: every action is one call of the app's HTTP API, and what comes back is drawn anew. Texts of people and of
// files become text nodes, never markup. `element` and `props` are given by Gradio.
const { limit, study, notes } = props.settings;
const MOVES = { up: "▲", down: "▼" };
const KINDS = { keep: "Keep", require: "Must have", avoid: "Avoid" };
const KEYS = [
  ["/", "write feedback"],
  ["1 … 9", "go to a result"],
  ["Enter", "play or stop the clip"],
  ["f", "found it"],
  ["m", "more like this"],
  ["n", "not this"],
  ["w", "why"],
  ["u", "undo"],
  ["?", "this list"],
];
const PATIENCE = 1000; // milliseconds after which the page says what it waits for
let view = null,
  task = null,
  memory = null,
  busy = false,
  timing = {};

const present = children => children.flat(Infinity).filter(child => child || child === 0);
const h = (tag, attributes = {}, ...children) => {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...present(children));
  return node;
};
const button = (text, onclick, more = {}) => h("button", { type: "button", onclick, ...more }, text);
const named = text => text.split(/(?<=[_./-])/).flatMap(part => [part, h("wbr")]); // long names break at their joints
const quoted = text => `“${text}”`;
const sentence = text => text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");
const percent = share => `${Math.round(100 * share)} %`;
const count = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
const store = {
  get: key => {
    try {
      return localStorage.getItem(key);
    } catch {
      return null;
    }
  },
  set: (key, value) => {
    try {
      localStorage.setItem(key, value);
    } catch {
      /* it is asked for again */
    }
  },
};
const wide = () => innerWidth > 820;
const seconds = () => Date.now() / 1000;
class Problem extends Error {}

const answer = (status, text) => {
  let said;
  try {
    said = JSON.parse(text);
  } catch {
    said = { error: `the server answered with status ${status}` };
  }
  if (status >= 400) throw new Problem(sentence(said.error));
  return said;
};
const call = async (path, body) => {
  const asked = body && { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  let said;
  try {
    said = await fetch(`/api/${path}`, asked);
  } catch {
    throw new Problem("The server does not answer. Everything before is kept: try again in a moment.");
  }
  return answer(said.status, await said.text());
};
const send = (file, progress) =>
  new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", "/api/uploads");
    request.setRequestHeader("content-type", "application/octet-stream");
    request.upload.onprogress = event => progress(event.loaded / event.total);
    request.onload = () => {
      try {
        resolve(answer(request.status, request.responseText));
      } catch (error) {
        reject(error);
      }
    };
    request.onerror = () => reject(new Problem("The upload was cut off: try again."));
    request.send(file);
  });

const bar = h("div", { class: "bar", "aria-hidden": "true" });
const state = h("p", { class: "state", role: "status" });
const fault = h("div", { class: "fault", role: "alert", hidden: true });
const body = h("div", { class: "body" });
const panel = h("dialog", {
  class: "panel",
  "aria-labelledby": "covr-panel",
  onclick: event => event.target === panel && panel.close(),
});

const complain = text => {
  fault.replaceChildren(
    h("p", {}, text),
    button(
      "Dismiss",
      () => {
        fault.hidden = true;
      },
      { class: "quiet" },
    ),
  );
  fault.hidden = !text;
};
const act = async (label, work) => {
  if (busy) return;
  busy = true;
  fault.hidden = true;
  element.setAttribute("aria-busy", "true");
  const begun = Date.now();
  const clock = setInterval(() => {
    const waited = Date.now() - begun;
    if (waited >= PATIENCE) state.textContent = `${label} … ${Math.round(waited / 1000)} s`;
  }, 250);
  try {
    await work();
  } catch (error) {
    complain(error instanceof Problem ? error.message : sentence(`the page failed: ${error.message}`));
  } finally {
    clearInterval(clock);
    state.textContent = "";
    element.removeAttribute("aria-busy");
    busy = false;
  }
};
const open = (title, ...children) => {
  const close = button("Close", () => panel.close(), { class: "quiet" });
  panel.replaceChildren(h("header", {}, h("h2", { id: "covr-panel" }, title), close), ...present(children));
  panel.showModal();
};
const schemes = ["auto", "light", "dark"];
const paint = scheme => {
  document.documentElement.style.colorScheme = scheme === "auto" ? "light dark" : scheme;
  store.set("covr_scheme", scheme);
  tint.textContent = { auto: "Auto", light: "Light", dark: "Dark" }[scheme];
  tint.setAttribute("aria-label", `Colours: ${scheme}`);
};
const tint = button("", () => paint(schemes[(schemes.indexOf(store.get("covr_scheme") || "auto") + 1) % 3]), {
  class: "quiet",
});
const help = () =>
  open(
    "Keyboard",
    h(
      "dl",
      { class: "keys" },
      KEYS.map(([key, does]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, does)]),
    ),
  );
const show = (...children) => {
  body.replaceChildren(...present(children));
  timing = { shown: seconds() };
};
const go = hash => {
  if (location.hash === hash) route();
  else location.hash = hash;
};

const write = () => {
  // no keyboard of a telephone comes up unasked
  if (!matchMedia("(pointer: coarse)").matches)
    element.querySelector("#covr-say, #covr-words")?.focus({ preventScroll: true });
};
