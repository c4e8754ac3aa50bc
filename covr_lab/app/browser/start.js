// Where a search begins: a reference, words, or both.
let chosen = null;
const begin = () => {
  view = memory = chosen = null;
  const slot = h("div", { class: "slot" }),
    grid = h("div", { class: "tiles" }),
    more = h("p", { class: "more" });
  const words = h("textarea", { id: "covr-words", rows: 2, maxlength: 2000 });
  const label = h("label", { for: "covr-words" });
  const file = h("input", {
    type: "file",
    accept: "video/*,image/*",
    id: "covr-file",
    class: "away",
    onchange: () => file.files[0] && bring(file.files[0]),
  });
  const choose = video => {
    chosen = video;
    label.textContent = video ? "What should be different?" : "Describe the video";
    words.placeholder = video ? "the same, but at night" : "a dog running on a beach";
    slot.classList.toggle("filled", Boolean(video));
    slot.replaceChildren(
      ...(video
        ? [
            mini(video, "Start from"),
            button("Remove", () => choose(null), { class: "quiet", "aria-label": "Start without a clip" }),
          ]
        : [
            h(
              "p",
              {},
              "No clip yet: choose one below",
              limit > 0 && [
                ", drop a file here, or ",
                h("label", { for: "covr-file", class: "link" }, "upload a clip or picture"),
              ],
              ".",
            ),
          ]),
    );
    if (limit) slot.append(file);
    for (const tile of grid.children) tile.setAttribute("aria-pressed", String(tile.dataset.id === video?.id));
  };
  const bring = chosenFile =>
    act("Uploading", async () => {
      file.value = "";
      if (chosenFile.size > limit)
        throw new Problem(`The file is larger than ${limit / 2 ** 20} MB: cut it, or save it smaller.`);
      const progress = h("progress", { max: 1, value: 0, "aria-label": "Upload" });
      slot.append(progress);
      try {
        choose(
          await send(chosenFile, done => {
            progress.value = done;
          }),
        );
      } finally {
        progress.remove();
      }
      write();
    });
  const run = () =>
    act("Searching", async () => {
      if (!chosen && !words.value.trim()) throw new Problem("Choose a clip to start from, or describe the video.");
      accept(await call("sessions", { reference: chosen?.id ?? null, text: words.value }));
    });
  let asked = 0;
  const list = async (text, page = 0) => {
    const mine = ++asked,
      found = await call(`videos?${new URLSearchParams({ q: text, page })}`);
    if (mine !== asked) return;
    const tiles = found.videos.map(video =>
      h(
        "button",
        {
          type: "button",
          class: "tile",
          "data-id": video.id,
          "aria-pressed": String(chosen?.id === video.id),
          onclick: () => {
            choose(video);
            write();
            scrollTo({ top: 0, behavior: "smooth" });
          },
        },
        thumb(video),
        h("span", { class: "name" }, named(video.name)),
        h("span", { class: "caption" }, video.caption),
      ),
    );
    if (page) grid.append(...tiles);
    else grid.replaceChildren(...tiles);
    more.replaceChildren(
      found.total
        ? `${grid.children.length} of ${count(found.total, "video")} `
        : "No video has these words in its name or caption.",
      page + 1 < found.pages
        ? button("Show more", () => list(text, page + 1).catch(error => complain(error.message)))
        : "",
    );
  };
  let wait = 0;
  const filter = h("input", {
    type: "search",
    id: "covr-filter",
    placeholder: "Name or caption",
    "aria-label": "Search the collection by name or caption",
    oninput: () => {
      clearTimeout(wait);
      wait = setTimeout(() => list(filter.value).catch(error => complain(error.message)), 250);
    },
  });
  show(
    h(
      "section",
      { class: "start" },
      h("h1", {}, "Find a video"),
      h(
        "p",
        { class: "lead" },
        "Start from a clip that comes close and say what should be different, or just describe what you want.",
      ),
      h(
        "form",
        {
          class: "ask",
          onsubmit: event => {
            event.preventDefault();
            run();
          },
          ondragover: event => event.preventDefault(),
          ondrop: event => {
            event.preventDefault();
            if (limit && event.dataTransfer.files[0]) bring(event.dataTransfer.files[0]);
          },
        },
        slot,
        h("div", { class: "words" }, label, words, h("button", { class: "go" }, "Search")),
      ),
    ),
    h(
      "section",
      { class: "collection", "aria-label": "Collection" },
      h("header", {}, h("h2", {}, "Collection"), filter),
      grid,
      more,
    ),
  );
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
