// The workers of the stores, and the runs that wait in their queues.

import { fill, h } from "./dom.js";
import { ago, compact, duration, shortName } from "./format.js";
import { mark } from "./status.js";

const EVERY = 3000;
const WORKER = ["State", "Worker", "Runs", "Workflows", "Queues", "Since", "Last sign"];
const QUEUE = ["Queue", "Workflow", "Version", "Ready", "Oldest", "Later", "Running", "Waiting", "Held", "Workers"];

/** @param {any} source @param {HTMLElement} root @returns {() => void} a function that stops it */
export function fleetView(source, root) {
  const away = h("p", { class: "away", role: "status", hidden: true });
  const unserved = h("div", { class: "unserved" });
  const workers = table("workers-table", WORKER);
  const queues = table("queues-table", QUEUE);
  let over = false;
  fill(
    root,
    away,
    h(
      "section",
      { class: "runs", "aria-labelledby": "fleet-title" },
      h("header", { class: "runs-head" }, h("h1", { id: "fleet-title", text: "Workers" })),
      unserved,
      workers.frame,
      h("h2", { class: "fleet-head", text: "Unfinished runs" }),
      queues.frame,
    ),
  );

  async function show() {
    try {
      const told = await source.fleet();
      if (over) return;
      away.hidden = true;
      const live = told.workers.filter((worker) => worker.state !== "ended");
      const ended = told.workers.filter((worker) => worker.state === "ended");
      workers.show([...live, ...ended].map(workerLine), "No worker has signed in. batonflow worker starts one.");
      queues.show(told.queues.map(queueLine), "Every run is over.");
      fill(unserved, told.queues.filter((line) => line.left).map(notice));
    } catch (error) {
      away.textContent = `This is as it was when the server answered last: ${error.message}. Trying again…`;
      away.hidden = over;
    }
  }

  void show();
  const timer = setInterval(() => document.visibilityState === "visible" && void show(), EVERY);
  return () => {
    over = true;
    clearInterval(timer);
  };
}

/** @param {string} name @param {string[]} columns */
function table(name, columns) {
  const rows = h("tbody", {});
  const head = h("tr", {}, columns.map((column) => h("th", { scope: "col", text: column })));
  const made = h("table", { class: `runs-table ${name}` }, h("thead", {}, head), rows);
  const empty = h("p", { class: "empty" });
  return {
    frame: h("div", { class: "table-frame" }, made, empty),
    /** @param {HTMLElement[]} lines @param {string} otherwise */
    show(lines, otherwise) {
      fill(rows, lines);
      made.hidden = !lines.length;
      empty.hidden = lines.length > 0;
      empty.textContent = otherwise;
    },
  };
}

/** @param {string[]} columns @param {any[]} values */
function cells(columns, values) {
  return h(
    "tr",
    {},
    columns.map((name, place) => {
      const value = values[place];
      const text = value instanceof Node ? null : value;
      return h("td", { "data-label": name, "data-none": text === "–", text }, text === null && value);
    }),
  );
}

/** @param {any} worker */
function workerLine(worker) {
  const moment = (seconds) => new Date(seconds * 1000).toISOString();
  const time = (seconds) => h("time", { text: ago(moment(seconds)), title: moment(seconds) });
  return cells(WORKER, [
    mark(worker.state),
    worker.name,
    `${worker.runs} of ${worker.slots}`,
    worker.workflows.map(shortName).join(", "),
    worker.queues?.join(", ") ?? "all",
    time(worker.since),
    time(worker.seen_at),
  ]);
}

/** @param {any} line */
function queueLine(line) {
  const counts = ["later", "running", "waiting", "held", "workers"].map((name) => compact(line[name]));
  const oldest = line.oldest === null ? "–" : duration(line.oldest);
  return cells(QUEUE, [line.queue, shortName(line.workflow), line.version ?? "–", compact(line.ready), oldest, ...counts]);
}

/** @param {any} line */
function notice(line) {
  const version = line.version ? ` of version ${line.version}` : "";
  const runs = line.ready === 1 ? "1 run" : `${compact(line.ready)} runs`;
  return h("p", { class: "away", text: `No worker takes up the ${runs} of ${shortName(line.workflow)}${version} in queue ${line.queue}.` });
}
