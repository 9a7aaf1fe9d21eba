// The list of runs, and the way to start one.

import { conversation } from "./chat_view.js";
import { attempt, button, dialog, fill, h } from "./dom.js";
import { ago, compact, duration, money, shortName, took } from "./format.js";
import { sketch } from "./graph.js";
import { address, note, place, visit } from "./router.js";
import { filterFields, filtersOf, queryOf } from "./run_filters.js";
import { eitherForm } from "./schema_form.js";
import { statusMark } from "./status.js";

const PAGE = 50;
const EVERY = 3000;

const COLUMNS = ["Status", "Run", "Workflow", "Worker", "Started", "Took", "Tokens", "Cost", "Commits"];

/** @param {any} source @param {HTMLElement} root @returns {() => void} a function that stops it */
export function runsView(source, root) {
  // The run before the first of each page gone through, to find the way back; the address has them too.
  const trail = [undefined, ...(place().page ?? "").split(",").filter(Boolean).map(decodeURIComponent)];
  const filter = filtersOf();
  let next = null;
  let round = 0;
  let asking = 0;

  const rows = h("tbody", {});
  const away = h("p", { class: "away", role: "status" });
  away.hidden = true;
  const count = h("span", { class: "muted", "aria-live": "polite" });
  const welcome = h("div", { class: "welcome", hidden: true });
  const turn = () => {
    note({ page: trail.slice(1).map(encodeURIComponent).join(",") });
    void attempt(show);
  };
  const back = button("Newer", () => {
    trail.pop();
    turn();
  });
  const on = button("Older", () => {
    trail.push(next);
    turn();
  });
  const fields = filterFields(filter, narrow, () => source.workflows());

  function narrow(changed) {
    if (Object.entries(changed).every(([name, value]) => filter[name] === value)) return;
    Object.assign(filter, changed);
    trail.splice(0, trail.length, undefined);
    history.replaceState(null, "", address(filter));
    void attempt(show);
  }

  async function show() {
    const own = ++round;
    asking += 1;
    const page = await source.runs(queryOf(filter), trail.at(-1), PAGE).finally(() => {
      asking -= 1;
    });
    if (own !== round) return;
    away.hidden = true;
    next = page.next;
    back.disabled = trail.length < 2;
    on.disabled = !next;
    fill(rows, page.handlers.map(line));
    rows.closest("table").classList.toggle("without-workers", !page.handlers.some((run) => run.worker));
    fields.offer(page.handlers.map((run) => run.workflow_name));
    const first = (trail.length - 1) * PAGE;
    const all = Object.values(filter).every((value) => !value);
    const blank = !page.handlers.length && trail.length < 2 && all;
    welcome.hidden = !blank;
    rows.closest(".table-frame").hidden = blank;
    if (blank && !welcome.childElementCount) void attempt(() => greet(source, welcome));
    const found = page.handlers.length ? `${first + 1}–${first + page.handlers.length}` : all ? "No runs." : "No run fits.";
    const left = page.unread ? ` ${compact(page.unread)} runs are still being read for the search…` : "";
    count.textContent = found + left;
  }

  /** @param {Error} error */
  function lost(error) {
    if (round < 0) return;
    away.textContent = `These runs are as they were when the server answered last: ${error.message}. Trying again…`;
    away.hidden = false;
  }

  const start = button("Start a run", () => void attempt(() => startDialog(source, filter.workflow)), {
    icon: "play",
    class: "primary",
  });
  start.id = "start-run";
  fill(
    root,
    away,
    layout([...fields.controls, h("span", { class: "spring" }), start], fields.further, rows, welcome, [
      count,
      h("span", { class: "spring" }),
      back,
      on,
    ]),
  );
  void attempt(show);
  void attempt(fields.refresh);
  const timer = setInterval(() => {
    const idle = !asking && !rows.contains(document.activeElement);
    if (document.visibilityState === "visible" && idle) show().catch(lost);
  }, EVERY);
  return () => {
    round = -1;
    clearInterval(timer);
  };
}

/** Shows the served workflows, and the ways to begin. @param {any} source @param {HTMLElement} place */
async function greet(source, place) {
  const [names, chats] = await Promise.all([source.workflows(), source.chats()]);
  const card = (name) =>
    h(
      "article",
      { class: "card" },
      h(
        "header",
        {},
        h("h2", { text: name }),
        h("span", { class: "spring" }),
        button("Start", () => void attempt(() => startDialog(source, name)), { icon: "play" }),
        chats.includes(name) && h("a", { class: "button primary", href: conversation(name), text: "Chat" }),
      ),
      sketch(source, name),
    );
  fill(place, h("p", { class: "muted", text: "No run has begun yet. This is served here:" }), names.map(card));
}

/** @param {Node[]} controls @param {HTMLElement} further @param {HTMLElement} rows @param {HTMLElement} welcome @param {Node[]} pager */
function layout(controls, further, rows, welcome, pager) {
  const head = h(
    "tr",
    {},
    COLUMNS.map((name) =>
      h("th", { scope: "col", "data-label": name, text: name, title: name === "Took" ? "From the start to the end, with waits for people" : null }),
    ),
  );
  const table = h("table", { class: "runs-table" }, h("thead", {}, head), rows);
  return h(
    "section",
    { class: "runs", "aria-labelledby": "runs-title" },
    h("header", { class: "runs-head" }, h("h1", { id: "runs-title", text: "Runs" }), controls),
    further,
    h("div", { class: "table-frame" }, table),
    welcome,
    h("footer", { class: "pager" }, pager),
  );
}

/** @param {Record<string, any>} run */
function line(run) {
  const tokens = run.tokens ? `${compact(run.tokens.input)} → ${compact(run.tokens.output)}` : "–";
  const cell = (name, text, title = null) =>
    h("td", { class: name, "data-label": name, "data-none": text === "–", title, text });
  return h(
    "tr",
    {},
    h("td", { "data-label": "Status" }, statusMark(run)),
    h(
      "td",
      { class: "id", "data-label": "Run" },
      h("a", { href: address({ run: run.handler_id }), text: run.handler_id, title: run.handler_id }),
      (run.held || run.error) && h("span", { class: "run-error", title: run.held ?? run.error, text: run.held ? `Held: ${run.held}` : run.error }),
    ),
    cell("Workflow", shortName(run.workflow_name), run.workflow_name),
    cell("Worker", run.worker ?? "–", run.worker),
    cell("Started", ago(run.started_at), run.started_at),
    cell("Took", duration(took(run))),
    cell("Tokens", tokens),
    cell("Cost", money(run.cost)),
    cell("Commits", compact(run.commits)),
  );
}

/** @param {any} source @param {string} preferred */
async function startDialog(source, preferred) {
  const names = await source.workflows();
  if (!names.length) throw new Error("This server does not have any workflows.");
  const place = h("div", {});
  let form = null;
  const select = h(
    "select",
    { id: "start-workflow", "aria-label": "Workflow" },
    names.map((name) => h("option", { value: name, text: name, selected: name === preferred })),
  );
  const send = h("button", { class: "button primary", text: "Start" });
  const body = h(
    "form",
    { class: "stack" },
    h("label", { for: "start-workflow", text: "Workflow" }),
    select,
    place,
    h("div", { class: "actions" }, send),
  );
  async function choose() {
    form = null;
    const schema = await source.startSchema(select.value);
    form = eitherForm(schema);
    fill(
      place,
      schema.description && h("p", { class: "hint", text: String(schema.description).split("\n\n")[0] }),
      form.element,
    );
  }
  select.addEventListener("change", () => void attempt(choose));
  const box = dialog("Start a run", body);
  body.addEventListener("submit", (event) => {
    event.preventDefault();
    const value = form?.read();
    if (!value) return;
    send.disabled = true;
    void attempt(async () => {
      const run = await source.start(select.value, value);
      box.close();
      visit({ run: run.handler_id });
    }).finally(() => {
      send.disabled = false;
    });
  });
  await choose();
}
