// The page: every action is one call of the app's HTTP API, and what comes back is drawn anew. Texts of people and of
// files become text nodes, never markup. `element` and `props` are given by Gradio.
const { limit, study, notes } = props.settings;
const MOVES = { up: "▲", down: "▼" };
const KINDS = { keep: "Keep", require: "Must have", avoid: "Avoid" };
const KEYS = [
  ["/", "write feedback"], ["1 … 9", "go to a result"], ["Enter", "play or stop the clip"], ["f", "found it"],
  ["m", "more like this"], ["n", "not this"], ["w", "why"], ["u", "undo"], ["?", "this list"],
];
const PATIENCE = 1000; // milliseconds after which the page says what it waits for
let view = null, task = null, memory = null, busy = false, timing = {};

// ---- small tools

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
const quoted = text => `“${text}”`;
const sentence = text => text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");
const percent = share => `${Math.round(100 * share)} %`;
const count = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
const store = { get: key => { try { return localStorage.getItem(key); } catch { return null; } },
  set: (key, value) => { try { localStorage.setItem(key, value); } catch { /* it is asked for again */ } } };
const wide = () => innerWidth > 820;
const seconds = () => Date.now() / 1000;
class Problem extends Error {}

const answer = (status, text) => {
  let said;
  try { said = JSON.parse(text); } catch { said = { error: `the server answered with status ${status}` }; }
  if (status >= 400) throw new Problem(sentence(said.error));
  return said;
};
const call = async (path, body) => {
  const asked = body && { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  let said;
  try { said = await fetch(`/api/${path}`, asked); }
  catch { throw new Problem("The server does not answer. Everything before is kept: try again in a moment."); }
  return answer(said.status, await said.text());
};
const send = (file, progress) => new Promise((resolve, reject) => {
  const request = new XMLHttpRequest();
  request.open("POST", "/api/uploads");
  request.setRequestHeader("content-type", "application/octet-stream");
  request.upload.onprogress = event => progress(event.loaded / event.total);
  request.onload = () => { try { resolve(answer(request.status, request.responseText)); } catch (error) { reject(error); } };
  request.onerror = () => reject(new Problem("The upload was cut off: try again."));
  request.send(file);
});

// ---- frame: heading, state, errors, dialogs

const bar = h("div", { class: "bar", "aria-hidden": "true" });
const state = h("p", { class: "state", role: "status" });
const fault = h("div", { class: "fault", role: "alert", hidden: true });
const body = h("div", { class: "body" });
const panel = h("dialog", { class: "panel", "aria-labelledby": "covr-panel", onclick: event => event.target === panel && panel.close() });

const complain = text => {
  fault.replaceChildren(h("p", {}, text), button("Dismiss", () => { fault.hidden = true; }, { class: "quiet" }));
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
  try { await work(); }
  catch (error) { complain(error instanceof Problem ? error.message : sentence(`the page failed: ${error.message}`)); }
  finally {
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
const tint = button("", () => paint(schemes[(schemes.indexOf(store.get("covr_scheme") || "auto") + 1) % 3]), { class: "quiet" });
const help = () => open("Keyboard", h("dl", { class: "keys" }, KEYS.map(([key, does]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, does)])));
const show = (...children) => {
  body.replaceChildren(...present(children));
  timing = { shown: seconds() };
};
const go = hash => { if (location.hash === hash) route(); else location.hash = hash; };

const write = () => { // no keyboard of a telephone comes up unasked
  if (matchMedia("(pointer: fine)").matches) element.querySelector("#covr-say, #covr-words")?.focus({ preventScroll: true });
};

// ---- videos

const player = (video, label = "") => {
  if (!video.media) return h("div", { class: "screen words" }, h("span", {}, video.caption || video.name));
  const still = h("img", { src: video.poster, alt: "", loading: "lazy", onerror: () => still.replaceWith(h("span", { class: "blank" }, "no picture")) });
  const clip = h("video", { playsinline: true, loop: true, muted: true, preload: "none", tabindex: -1 });
  const note = h("span", { class: "note" });
  let pinned = false;
  clip.muted = true;
  const play = () => {
    if (!clip.getAttribute("src")) clip.src = video.media;
    clip.play().catch(() => {}); // what is wrong is told by the error event
  };
  const stop = () => { pinned = false; clip.pause(); };
  clip.addEventListener("error", async () => {
    if (!clip.getAttribute("src")) return;
    const said = await fetch(video.media).catch(() => null), flat = said?.headers.get("content-type")?.startsWith("image/");
    note.textContent = flat ? "" : said && !said.ok ? sentence(await said.text()) : "This clip cannot be played here.";
  });
  const paused = () => clip.closest(".screen").classList.toggle("playing", !clip.paused);
  for (const kind of ["play", "pause"]) clip.addEventListener(kind, paused);
  return h("button", {
    class: "screen", type: "button", "aria-label": `Play ${label}${video.name}`,
    onclick: () => { if (pinned) stop(); else { pinned = true; play(); } },
    onpointerenter: event => event.pointerType === "mouse" && play(),
    onpointerleave: event => event.pointerType === "mouse" && !pinned && stop(),
  }, still, clip, note);
};
const mini = (video, text = "") => h("figure", { class: "mini" }, player(video),
  h("figcaption", {}, text && h("small", {}, text), h("span", { class: "name" }, video.name), h("small", { class: "caption" }, video.caption)));
// In the study people look: a name or caption would be words to copy.
const picture = (video, what) => h("div", { class: "mini" }, player({ ...video, name: what }));
const thumb = video => video.poster
  ? h("img", { src: video.poster, alt: "", loading: "lazy", onerror: event => { event.target.style.visibility = "hidden"; } }) : null;

// ---- start: a reference, words, or both

let chosen = null;
const begin = () => {
  view = memory = chosen = null;
  const slot = h("div", { class: "slot" }), grid = h("div", { class: "tiles" }), more = h("p", { class: "more" });
  const words = h("textarea", { id: "covr-words", rows: 2, maxlength: 2000 });
  const label = h("label", { for: "covr-words" });
  const file = h("input", { type: "file", accept: "video/*,image/*", id: "covr-file", class: "away", onchange: () => file.files[0] && bring(file.files[0]) });
  const choose = video => {
    chosen = video;
    label.textContent = video ? "What should be different?" : "Describe the video";
    words.placeholder = video ? "the same, but at night" : "a dog running on a beach";
    slot.classList.toggle("filled", Boolean(video));
    slot.replaceChildren(...(video
      ? [mini(video, "Start from"), button("Remove", () => choose(null), { class: "quiet", "aria-label": "Start without a clip" })]
      : [h("p", {}, "No clip yet: choose one below, drop a file here, or ", h("label", { for: "covr-file", class: "link" }, "upload a clip or picture"), ".")]));
    slot.append(file);
    for (const tile of grid.children) tile.setAttribute("aria-pressed", String(tile.dataset.id === video?.id));
  };
  const bring = chosenFile => act("Uploading", async () => {
    file.value = "";
    if (chosenFile.size > limit) throw new Problem(`The file is larger than ${limit / 2 ** 20} MB: cut it, or save it smaller.`);
    const progress = h("progress", { max: 1, value: 0, "aria-label": "Upload" });
    slot.append(progress);
    try { choose(await send(chosenFile, done => { progress.value = done; })); }
    finally { progress.remove(); }
    write();
  });
  const run = () => act("Searching", async () => {
    if (!chosen && !words.value.trim()) throw new Problem("Choose a clip to start from, or describe the video.");
    accept(await call("sessions", { reference: chosen?.id ?? null, text: words.value }));
  });
  let asked = 0;
  const list = async (text, page = 0) => {
    const mine = ++asked, found = await call(`videos?${new URLSearchParams({ q: text, page })}`);
    if (mine !== asked) return;
    const tiles = found.videos.map(video => h("button", {
      type: "button", class: "tile", "data-id": video.id, "aria-pressed": String(chosen?.id === video.id),
      onclick: () => { choose(video); write(); scrollTo({ top: 0, behavior: "smooth" }); },
    }, thumb(video), h("span", { class: "name" }, video.name), h("span", { class: "caption" }, video.caption)));
    if (page) grid.append(...tiles); else grid.replaceChildren(...tiles);
    more.replaceChildren(found.total ? `${grid.children.length} of ${count(found.total, "video")} ` : "No video has these words in its name or caption.",
      page + 1 < found.pages ? button("Show more", () => list(text, page + 1).catch(error => complain(error.message))) : "");
  };
  let wait = 0;
  const filter = h("input", {
    type: "search", id: "covr-filter", placeholder: "Name or caption", "aria-label": "Search the collection by name or caption",
    oninput: () => { clearTimeout(wait); wait = setTimeout(() => list(filter.value).catch(error => complain(error.message)), 250); },
  });
  show(
    h("section", { class: "start" },
      h("h1", {}, "Find a video"),
      h("p", { class: "lead" }, "Start from a clip that comes close and say what should be different, or just describe what you want."),
      h("form", {
        class: "ask", onsubmit: event => { event.preventDefault(); run(); },
        ondragover: event => event.preventDefault(),
        ondrop: event => { event.preventDefault(); if (event.dataTransfer.files[0]) bring(event.dataTransfer.files[0]); },
      }, slot, h("div", { class: "words" }, label, words, h("button", { class: "go" }, "Search")))),
    h("section", { class: "library", "aria-label": "Collection" }, h("header", {}, h("h2", {}, "Collection"), filter), grid, more));
  words.addEventListener("keydown", event => enter(event, run));
  choose(null);
  more.textContent = "Listing the videos …";
  list("").catch(error => complain(error.message));
};
const enter = (event, work) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  work();
};

// ---- a search

const accept = said => {
  view = said;
  memory = null;
  history.replaceState(null, "", `#search/${said.id}`);
  results();
  scrollTo(0, 0);
  write();
};
const at = (action, more = {}) => call(`sessions/${view.id}/${action}`, { turn: view.turn, ...more });
const actions = {
  found: video => act("Noting it", async () => accept(await at("found", { video }))),
  more: video => act("Searching", async () => {
    const said = await call(`sessions/${view.id}/more_like`, { video });
    go(`#search/${said.id}`);
  }),
  not: video => act("Searching", async () => accept(await at("not_this", { video }))),
  undo: () => act("Going back", async () => accept(await at("undo"))),
  say: text => act("Searching", async () => {
    const edited = memory && tidy(memory);
    if (!text.trim() && !edited) throw new Problem("Write what should change, or answer the question.");
    accept(await at("feedback", { text, memory: edited, timing: { ...timing, sent: seconds() } }));
  }),
};
const tidy = edited => ({ ...Object.fromEntries(Object.keys(KINDS).map(kind => [kind, edited[kind].map(one => one.trim()).filter(Boolean)])), query: "" });

const movement = result => {
  if (view.turn === 0 || view.over) return null;
  if (result.new) return h("span", { class: "move new", "aria-label": "new among the results" }, "new");
  const by = result.before - result.rank;
  if (!by) return h("span", { class: "move", "aria-label": "same rank as before" }, "=");
  const way = by > 0 ? "up" : "down";
  return h("span", { class: `move ${way}`, "aria-label": `${way} ${Math.abs(by)} since the last turn` }, `${MOVES[way]} ${Math.abs(by)}`);
};
const channelsOf = () => [...new Set(view.results.flatMap(result => Object.keys(result.shares)))].sort();
const shares = (result, names) => {
  const parts = names.filter(name => result.shares[name]);
  if (!parts.length) return null;
  const text = parts.map(name => `${name} ${percent(result.shares[name])}`).join(" · ");
  return h("div", { class: "shares", title: "Share of each channel in this place" },
    h("div", { class: "stack", "aria-hidden": "true" }, parts.map(name => {
      const part = h("i", { class: `c${names.indexOf(name) % 6}` });
      part.style.flexGrow = result.shares[name];
      return part;
    })), h("small", {}, text));
};
const card = (result, names) => {
  const does = (text, name, more = {}) => button(text, () => actions[name](result.id), { "data-does": name, "aria-label": `${text}: ${result.name}`, ...more });
  return h("article", { class: result.rank === 1 ? "card first" : "card", "data-rank": result.rank, "data-id": result.id, "aria-label": `Result ${result.rank}: ${result.name}` },
    h("div", { class: "picture" }, player(result, `result ${result.rank}: `), h("span", { class: "rank" }, result.rank), movement(result)),
    h("div", { class: "about" },
      h("h3", { class: "name" }, result.name),
      result.media && h("p", { class: "caption", title: result.caption }, result.caption),
      result.rank === 1 && !view.over && h("p", { class: "hint" }, "Best match so far: your words are read as changes to this one."),
      shares(result, names)),
    h("div", { class: "acts" },
      !view.over && does("Found it", "found"), does("More like this", "more"), !view.over && does("Not this", "not"),
      button("Why?", () => why(result), { "data-does": "why", "aria-label": `Why ${result.name} is here` })));
};
const results = () => {
  const names = channelsOf(), said = view.notes.map(sentence), last = view.history.at(-1);
  if (last.error) said.push(sentence(`this turn failed, the order is that of the turn before: ${last.error}`));
  const scope = view.total > view.results.length ? `The best ${view.results.length} of ${count(view.total, "video")}` : count(view.total, "video");
  const ended = view.over && view.results.find(result => result.id === view.found);
  show(h("div", { class: "search" },
    request(),
    h("main", { class: "results" },
      h("header", {}, h("h1", {}, view.over ? "Found" : "Results"),
        button("Undo", actions.undo, { "data-does": "undo", disabled: view.turn === 0, title: "Take the last turn back" }),
        h("p", { class: "soft" }, view.over
        ? `${ended ? `${ended.name}, at rank ${ended.rank}` : view.found}, after ${count(view.turn - 1, "turn")} of feedback.`
        : `${scope}, best first. There is always a list: it need not hold what you want.`)),
      said.length > 0 && h("ul", { class: "notes" }, said.map(note => h("li", {}, note))),
      h("div", { class: "cards" }, view.results.map(result => card(result, names)))),
    h("aside", {}, constraints(), past()),
    view.over ? ending() : composer()));
};
const request = () => h("section", { class: "request", "aria-label": "Your request" },
  h("h2", {}, "Your request"),
  view.reference && mini(view.reference, "Start from"),
  view.text && h("p", { class: "quote" }, quoted(view.text)),
  h("div", { class: "row" }, button("New search", () => go("#")),
    view.parent && button("Search before", () => go(`#search/${view.parent}`))));
const ending = () => h("div", { class: "say over" }, h("p", {}, "This search is over."), button("New search", () => go("#"), { class: "go" }));
const composer = () => {
  const text = box("covr-say", view.question ? "Your answer, or a change" : "What should change?", () => actions.say(text.value));
  return h("form", { class: "say", onsubmit: event => { event.preventDefault(); actions.say(text.value); } },
    view.question && h("p", { class: "question" }, view.question),
    h("div", { class: "row" }, text, h("button", { class: "go" }, "Send")));
};
const box = (id, placeholder, work) => h("textarea", {
  id, rows: 1, maxlength: 2000, placeholder, "aria-label": placeholder,
  oninput: () => { timing.first_key ??= seconds(); }, onkeydown: event => enter(event, work),
});

// ---- what is remembered, how it went, and why

const constraints = () => {
  const section = h("details", { class: "side", open: wide() });
  const draw = () => {
    const now = memory ?? view.constraints;
    const edit = change => { memory ??= structuredClone(view.constraints); change(memory); };
    section.replaceChildren(h("summary", {}, "What counts"),
      ...Object.entries(KINDS).map(([kind, title]) => h("div", { class: "chips" },
        h("h3", { id: `covr-${kind}` }, title),
        h("ul", { "aria-labelledby": `covr-${kind}` }, now[kind].map((text, place) => h("li", { class: `chip ${kind}` },
          h("input", {
            value: text, size: Math.max(text.length, 4), readonly: view.over, "aria-label": `${title}: change`,
            oninput: event => { edit(other => { other[kind][place] = event.target.value; }); apply.hidden = false; },
            onkeydown: event => enter(event, () => actions.say("")),
          }),
          !view.over && button("×", () => { edit(other => other[kind].splice(place, 1)); draw(); }, { "aria-label": `Remove ${text}` }))),
        !view.over && h("li", {}, button("+ add", () => {
          edit(other => other[kind].push(""));
          draw();
          section.querySelectorAll(`.chip.${kind} input`)[now[kind].length - (now === memory ? 1 : 0)].focus();
        }, { class: "quiet", "aria-label": `Add to ${title}` }))))),
      view.constraints.query && h("p", { class: "soft" }, "Looked for: ", quoted(view.constraints.query)));
    const apply = h("div", { class: "row", hidden: !memory }, button("Search with these", () => actions.say(""), { class: "go" }),
      button("Reset", () => { memory = null; draw(); }, { class: "quiet" }));
    section.append(apply);
  };
  draw();
  return section;
};
const past = () => h("details", { class: "side past", open: wide() }, h("summary", {}, "How it went"), h("ol", {}, view.history.map(turn => {
  const parts = [];
  if (turn.question) parts.push(h("p", { class: "asked" }, turn.question));
  if (turn.turn === 0) parts.push(h("p", {}, view.text ? quoted(view.text) : "What resembles the clip"));
  else if (turn.action === "stop") parts.push(h("p", {}, "Found it"));
  else if (turn.feedback) parts.push(h("p", {}, quoted(turn.feedback)));
  if (turn.rejected.length) parts.push(h("p", {}, `Not this: ${turn.rejected.map(video => video.name).join(", ")}`));
  if (turn.edited) parts.push(h("p", {}, "Changed what counts"));
  if (turn.error) parts.push(h("p", { class: "bad" }, sentence(turn.error)));
  if (turn.shown) parts.push(h("p", { class: "shown" }, thumb(turn.shown), (!task || !turn.shown.poster) && h("small", {}, h("span", { class: "name" }, turn.shown.name), turn.shown.caption)));
  return h("li", { value: turn.turn }, h("b", {}, turn.turn === 0 ? "Start" : `Turn ${turn.turn}`), parts);
})));
const why = result => {
  const channels = [...new Set(result.why.flatMap(turn => Object.keys(turn.channels)))].sort();
  const row = turn => {
    const said = view.history[turn.turn], sent = Object.entries(said.sent ?? {}).filter(([, text]) => text);
    return [h("tr", {}, h("th", { scope: "row" }, turn.turn || "start"), h("td", {}, turn.rank ?? "–"), channels.map(name => h("td", {}, turn.channels[name] ?? "–"))),
      (turn.cap || sent.length > 0) && h("tr", { class: "detail" }, h("td", { colspan: channels.length + 2 },
        sent.map(([kind, text]) => h("p", {}, h("b", {}, `${kind}: `), text)), turn.cap && h("p", { class: "cap" }, sentence(turn.cap))))];
  };
  open(`Why rank ${result.rank}: ${result.name}`,
    h("p", { class: "caption" }, result.caption),
    shares(result, channelsOf()),
    result.score !== null && h("p", {}, `Score ${result.score.toFixed(3)}; comparable within this list only.`),
    h("h3", {}, "Rank at each turn, in the result and in each channel"),
    h("div", { class: "scroll" }, h("table", {},
      h("thead", {}, h("tr", {}, ["turn", "result", ...channels].map(name => h("th", { scope: "col" }, name)))),
      h("tbody", {}, result.why.map(row)))),
    Object.keys(result.stages).length > 0 && h("p", {}, "In this turn: ", Object.entries(result.stages).map(([name, rank]) => `${name} ${rank}`).join(", then ")),
    result.reasons.length > 0 && [h("h3", {}, "Compared with others"), h("ul", {}, result.reasons.map(one =>
      h("li", {}, h("b", {}, `${one.outcome} against ${one.against}`), one.reason && `: ${one.reason}`)))]);
};

// ---- the study

const person = () => store.get("covr_participant");
const consent = (text = "") => {
  const id = h("input", { id: "covr-id", required: true, maxlength: 100, autocomplete: "off", value: text });
  const agree = h("input", { type: "checkbox", id: "covr-agree", required: true });
  show(h("section", { class: "consent" },
    h("h1", {}, "Study: finding videos by talking"),
    h("p", { class: "lead" }, "You will see a clip to start from, what should change in it, and the video that is wanted. Say in your own words how the system's best match should change until it is the wanted video."),
    h("ul", {}, h("li", {}, `Up to ${study.each} tasks, each with at most ${count(study.turns, "turn")} of feedback. You can pause at any time and go on later in this browser.`),
      h("li", {}, "Recorded are what you write and press, the results you saw, and when; under your participant id, on this computer's disk, nowhere else."),
      h("li", {}, "Write nothing about yourself or others. You may stop whenever you like, without a reason.")),
    h("form", { onsubmit: event => {
      event.preventDefault();
      act("Preparing your task", async () => {
        const given = await call("study/consent", { participant: id.value });
        store.set("covr_participant", id.value);
        assign(given);
      });
    } }, h("label", { for: "covr-id" }, "Participant id"), id,
      h("label", { class: "check", for: "covr-agree" }, agree, "I have read this and take part of my own will."),
      h("button", { class: "go" }, "Agree and begin"))));
};
const resume = () => act("Fetching your task", async () => {
  try { assign(await call(`study/task?${new URLSearchParams({ participant: person() })}`)); }
  catch (error) { consent(person()); throw error; }
});
const assign = given => {
  task = given;
  view = given.search ?? null;
  memory = null;
  if (given.done) {
    show(h("section", { class: "consent" }, h("h1", {}, "That was the last task"), h("p", { class: "lead" }, "Thank you for taking part. You can close this page.")));
    return;
  }
  const top = view.results[0], mine = more => ({ participant: person(), instance: given.instance, ...more });
  const times = () => ({ ...timing, sent: seconds() });
  const say = () => act("Searching", async () => {
    if (!text.value.trim()) throw new Problem("Write what should change, or answer the question.");
    assign(await call("study/feedback", mine({ text: text.value, turn: view.turn, timing: times() })));
  });
  const next = (path, more = {}) => act("Preparing the next task", async () => assign(await call(`study/${path}`, mine(more))));
  const text = box("covr-say", view.question ? "Your answer, or a change" : "What should change?", say);
  show(h("section", { class: "task" },
    h("header", {}, h("h1", {}, `Task ${given.number} of ${given.of}`), h("p", { class: "soft" }, given.left ? `${count(given.left, "turn")} of feedback left` : "No feedback left: say whether it was found."),
      button("Pause", pause)),
    h("div", { class: "pair" },
      h("section", {}, h("h2", {}, "Start from"), view.reference ? picture(view.reference, "the first clip") : h("p", { class: "soft" }, "No clip"), h("p", { class: "quote" }, quoted(view.text))),
      h("section", {}, h("h2", {}, "Best match now"), top ? picture(top, "the best match") : h("p", { class: "soft" }, "Nothing yet"),
        h("div", { class: "row" }, top && button("Found it", () => next("found", { video: top.id, timing: times() }), { class: "go" }),
          button(given.left ? "Give up on this one" : "Not found", () => next("leave"), { class: "quiet" })))),
    given.left > 0 && h("form", { class: "say", onsubmit: event => { event.preventDefault(); say(); } },
      view.question && h("p", { class: "question" }, view.question),
      h("div", { class: "row" }, text, h("button", { class: "go" }, "Send"))),
    past(),
    h("section", { class: "wanted", "aria-label": "The wanted video" }, h("h2", {}, "The wanted video"), h("p", { class: "soft" }, "Only you see it; the system does not."), picture(given.target, "the wanted video"))));
};
const pause = () => {
  show(h("section", { class: "consent" }, h("h1", {}, "Paused"), h("p", { class: "lead" }, "Your work is kept. You can close this page and come back in this browser."),
    button("Go on", resume, { class: "go" })));
};

// ---- ways into the page

const route = () => {
  const [place, id] = location.hash.slice(1).split("/");
  fault.hidden = true;
  if (panel.open) panel.close();
  nav.querySelectorAll("a").forEach(link => link.toggleAttribute("aria-current", (link.hash === "#study") === (place === "study")));
  if (place === "study" && study) { if (person()) resume(); else consent(); return; }
  task = null;
  if (place !== "search") { begin(); return; }
  setTimeout(() => act("Fetching the search", async () => {
    try { accept(await call(`sessions/${encodeURIComponent(id)}`)); }
    catch (error) { begin(); throw error; }
  }));
};
const shortcut = event => {
  const typing = event.target.closest?.("input, textarea, dialog");
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const card = document.activeElement.closest?.(".card"), names = { f: "found", m: "more", n: "not", w: "why", u: "undo" };
  const wanted = names[event.key] === "undo" ? element : card;
  if (event.key === "?") help();
  else if (event.key === "/") element.querySelector("#covr-say, #covr-words")?.focus();
  else if (/^[1-9]$/.test(event.key)) element.querySelector(`.card[data-rank="${event.key}"] .screen`)?.focus();
  else if (names[event.key] && wanted) wanted.querySelector(`[data-does="${names[event.key]}"]`)?.click();
  else return;
  event.preventDefault();
};
const nav = h("nav", {}, study && [h("a", { href: "#" }, "Search"), h("a", { href: "#study" }, "Study")]);
const app = h("div", { class: "covr" },
  h("header", { class: "top" }, h("a", { class: "brand", href: "#" }, "covr_lab"), nav, h("span", { class: "gap" }), button("Keys", help, { class: "quiet" }), tint, bar),
  notes.length > 0 && h("details", { class: "caution", open: wide() }, h("summary", {}, "What to know about these results"), notes.map(note => h("p", {}, sentence(note)))), state, fault, body, panel);
element.replaceChildren(app);
paint(store.get("covr_scheme") || "auto");
addEventListener("hashchange", route);
addEventListener("keydown", shortcut);
route();
