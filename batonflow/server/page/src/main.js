// The page starts here.

import { chatView, conversation } from "./chat_view.js";
import { compareView, pairIn } from "./compare_view.js";
import { attempt, button, fill, h } from "./dom.js";
import { Inbox, inboxLink, inboxView } from "./inbox.js";
import { fleetView } from "./fleet_view.js";
import { helpDialog, onKeys } from "./keys.js";
import { address, place } from "./router.js";
import { EmbeddedSource, LiveSource, embeddedData } from "./source.js";
import { runView } from "./run_view.js";
import { runsView } from "./runs_view.js";
import { nextTheme, startTheme, themeButton } from "./theme.js";

const data = embeddedData();
const source = data ? new EmbeddedSource(data) : new LiveSource();
const inbox = data ? null : new Inbox(source);
const root = document.getElementById("main");

/** @type {Record<string, {title: string, open: () => () => void}>} The views beside the list of runs. */
const OTHERS = {
  inbox: { title: "Inbox", open: () => inboxView(inbox, root) },
  workers: { title: "Workers", open: () => fleetView(source, root) },
};

/** @type {() => void} */ let stop = () => {};
/** @type {string | null | undefined} */ let shown;

/** Opens the view of the address, unless it is open already. */
async function show() {
  const run = data ? data.handler.handler_id : (place().run ?? null);
  const pair = data || run !== null ? null : pairIn(place().compare ?? "");
  const chat = data || run !== null || pair ? undefined : place().chat;
  const view = run === null && !pair && chat === undefined && inbox ? place().view : undefined;
  const other = OTHERS[view];
  const talks = `chat ${chat} ${place().session}`;
  const wanted = pair ? `compare ${place().compare}` : chat !== undefined ? talks : other ? `view ${view}` : `run ${run}`;
  const lists = run === null && !pair && chat === undefined && !other;
  // The filters and the page of the list are in its address.
  if (wanted === shown && !lists) return;
  shown = wanted;
  stop();
  stop = () => {};
  document.body.classList.toggle("one", run !== null);
  for (const link of document.querySelectorAll(".view-link"))
    link.toggleAttribute("aria-current", link.dataset.view === (chat !== undefined ? "chat" : other ? view : "runs"));
  document.title = `${other ? other.title : chat !== undefined ? `Chat with ${chat}` : (run ?? "Runs")} – batonflow`;
  if (chat !== undefined) {
    document.body.classList.add("one");
    const deaf = onKeys({ "?": helpDialog, t: nextTheme });
    stop = deaf;
    fill(root, h("p", { class: "empty", text: "Loading…" }));
    const view = await attempt(() => chatView(source));
    const failed = h("p", { class: "empty" }, "This conversation cannot be shown. ", h("a", { href: "#", text: "All runs" }));
    if (shown !== wanted) return;
    fill(root, view?.element ?? failed);
    if (!view) return;
    stop = () => {
      deaf();
      view.leave();
    };
    void attempt(() => view.open());
    return;
  }
  if (pair) {
    document.title = `${pair.join(" and ")} – batonflow`;
    stop = onKeys({ "?": helpDialog, t: nextTheme });
    fill(root, h("p", { class: "empty", text: "Loading…" }));
    const made = await attempt(() => compareView(source, pair));
    const failed = h("p", { class: "empty" }, "These runs cannot be compared. ", h("a", { href: "#", text: "All runs" }));
    if (shown === wanted) fill(root, made ?? failed);
    return;
  }
  if (run === null) {
    const deaf = onKeys({ "?": helpDialog, t: nextTheme });
    const leave = other ? other.open() : runsView(source, root);
    stop = () => {
      deaf();
      leave();
    };
    return;
  }
  fill(root, h("p", { class: "empty", text: "Loading…" }));
  const opened = await attempt(() => runView(source, run, root));
  if (opened) stop = opened;
  else fill(root, h("p", { class: "empty" }, "This run cannot be shown. ", h("a", { href: "#", text: "All runs" })));
}

startTheme();
const home = data
  ? h("span", { class: "brand", text: "batonflow" })
  : h("a", { class: "brand", href: "#", text: "batonflow" });
const views = h("nav", { "aria-label": "Views" }, h("a", { class: "view-link", href: "#", "data-view": "runs", text: "Runs" }));
if (inbox) views.append(inboxLink(inbox));
fill(
  document.getElementById("top"),
  home,
  data && h("span", { class: "muted", text: "an exported run" }),
  inbox && views,
  h("span", { class: "spring" }),
  themeButton(),
  button("Keys", helpDialog, { icon: "help", bare: true }),
);
document.getElementById("skip").addEventListener("click", (event) => {
  // The part after the # names the run.
  event.preventDefault();
  root.focus();
});
if (inbox) {
  void attempt(async () => {
    const [first] = await source.chats();
    if (!first) return;
    const link = h("a", { class: "view-link", href: conversation(first), "data-view": "chat", text: "Chat" });
    link.toggleAttribute("aria-current", place().chat !== undefined);
    views.children[0].after(link);
  });
  void attempt(async () => {
    const { workers } = await source.fleet();
    if (!workers.length && place().view !== "workers") return;
    const link = h("a", { class: "view-link", href: address({ view: "workers" }), "data-view": "workers", text: "Workers" });
    link.toggleAttribute("aria-current", place().view === "workers");
    views.append(link);
  });
}
window.addEventListener("hashchange", () => void show());
void show();
