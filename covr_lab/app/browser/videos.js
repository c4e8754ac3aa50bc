// A video on the page: a tile that plays, with or without its name.
const player = (video, label = "") => {
  if (!video.media) return h("div", { class: "screen words" }, h("span", {}, video.caption || video.name));
  const still = h("img", {
    src: video.poster,
    alt: "",
    loading: "lazy",
    onerror: () => still.replaceWith(h("span", { class: "blank" }, "no picture")),
  });
  const clip = h("video", { playsinline: true, loop: true, muted: true, preload: "none", tabindex: -1 });
  const note = h("span", { class: "note" });
  let pinned = false;
  clip.muted = true;
  const play = () => {
    if (!clip.getAttribute("src")) clip.src = video.media;
    clip.play().catch(() => {}); // what is wrong is told by the error event
  };
  const stop = () => {
    pinned = false;
    clip.pause();
  };
  clip.addEventListener("error", async () => {
    if (!clip.getAttribute("src")) return;
    const said = await fetch(video.media, { headers: { range: "bytes=0-0" } }).catch(() => null),
      flat = said?.headers.get("content-type")?.startsWith("image/");
    note.textContent = flat ? "" : said && !said.ok ? sentence(await said.text()) : "This clip cannot be played here.";
  });
  const paused = () => clip.closest(".screen").classList.toggle("playing", !clip.paused);
  for (const kind of ["play", "pause"]) clip.addEventListener(kind, paused);
  return h(
    "button",
    {
      class: "screen",
      type: "button",
      "aria-label": `Play ${label}${video.name}`,
      onclick: () => {
        if (pinned) stop();
        else {
          pinned = true;
          play();
        }
      },
      onpointerenter: event => event.pointerType === "mouse" && play(),
      onpointerleave: event => event.pointerType === "mouse" && !pinned && stop(),
    },
    still,
    clip,
    note,
  );
};
const mini = (video, text = "") =>
  h(
    "figure",
    { class: video.media ? "mini" : "mini flat" },
    video.media && player(video),
    h(
      "figcaption",
      {},
      text && h("small", {}, text),
      h("span", { class: "name" }, named(video.name)),
      h("small", { class: "caption" }, video.caption),
    ),
  );
// In the study people look: a name or caption would be words to copy.
const picture = (video, what) => h("div", { class: "mini" }, player({ ...video, name: what }));
const thumb = video =>
  video.poster
    ? h("img", {
        src: video.poster,
        alt: "",
        loading: "lazy",
        onerror: event => {
          event.target.style.visibility = "hidden";
        },
      })
    : null;
