// The lanes and rows of the timeline's bars.

/**
 * @typedef {import("./model.js").Attempt} Attempt
 * @typedef {{key: string, label: string, note: string, path: string, step: string, agent: string, attempts: Attempt[],
 *   rowOf: Map<Attempt, number>, rows: number, top: number, height: number, colour: number}} Lane
 */

export const ROW = 18;
const PADDING = 6;
const MOST_ROWS = 6;

/**
 * @param {import("./session.js").Session} session @param {"steps" | "agents"} by
 * @returns {{lanes: Lane[], height: number, colours: Map<string, number>}}
 */
export function lanesOf(session, by) {
  const { model, handler } = session;
  /** @type {Map<string, number>} */ const colours = new Map();
  /** @type {Map<string, Lane>} */ const lanes = new Map();
  const run = lane("run", (handler.workflow_name ?? "run").split(".").pop() ?? "run", "", "", "", "");
  for (const attempt of model.attempts) {
    if (!colours.has(attempt.step)) colours.set(attempt.step, colours.size % 8);
    const one = laneFor(lanes, attempt.path, attempt.step, attempt.agent, by);
    // The part that a fork shares with its parent ended before the fork began.
    if (attempt.end >= model.from || attempt.state === "waiting") one.attempts.push(attempt);
  }
  for (const { path, step, began } of session.running.values()) {
    if (!colours.has(step)) colours.set(step, colours.size % 8);
    if (by === "steps") laneFor(lanes, path, step, "", by).attempts.push(underway(path, step, began));
  }
  const found = [run, ...ordered([...lanes.values()])];
  let top = 0;
  for (const one of found) {
    stack(one);
    one.colour = colours.get(one.step) ?? 0;
    one.top = top;
    one.height = one.rows * ROW + PADDING;
    top += one.height;
  }
  return { lanes: found, height: top, colours };
}

/** Children follow the lanes of their parent workflow. @param {Lane[]} lanes */
function ordered(lanes) {
  const paths = [...new Set(lanes.map((one) => one.path))].sort((one, other) => (one < other ? -1 : 1));
  return paths.flatMap((path) => lanes.filter((one) => one.path === path));
}

/** @param {Map<string, Lane>} lanes @param {string} path @param {string} step @param {string} agent @param {string} by */
function laneFor(lanes, path, step, agent, by) {
  const named = by === "agents" ? agent || "no agent" : step;
  const key = `${path}\n${named}`;
  let found = lanes.get(key);
  if (!found) {
    const own = by === "steps";
    found = lane(key, named, path, path, own ? step : "", own ? "" : agent);
    lanes.set(key, found);
  }
  return found;
}

/** An attempt without committed data. @returns {Attempt} */
function underway(path, step, began) {
  return {
    key: "",
    path,
    step,
    item: 0,
    attempt: 0,
    entries: [],
    began,
    end: Infinity,
    state: "running",
    stretches: [{ from: began, to: Infinity, wait: false }],
    causes: [],
    agent: "",
    answered: 0,
  };
}

/** @returns {Lane} */
function lane(key, label, note, path, step, agent) {
  return { key, label, note, path, step, agent, attempts: [], rowOf: new Map(), rows: 1, top: 0, height: 0, colour: 0 };
}

/** Bars that overlap in time go into rows of their own. @param {Lane} one */
function stack(one) {
  /** @type {number[]} */ const ends = [];
  for (const attempt of [...one.attempts].sort((first, second) => first.began - second.began)) {
    let row = ends.findIndex((end) => end <= attempt.began);
    if (row < 0) row = Math.min(ends.length, MOST_ROWS - 1);
    ends[row] = Math.max(ends[row] ?? 0, attempt.end);
    one.rowOf.set(attempt, row);
  }
  one.rows = Math.max(1, ends.length);
}
