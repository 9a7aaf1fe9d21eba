// The drawing of the workflow, with the status of the run at the chosen instant.

import { attempt, button, fill, h, oncePerFrame, s } from "./dom.js";
import { graphAt } from "./instants.js";
import { compact } from "./format.js";
import { graphPath } from "./model.js";

const ALLOWED = new Set(["g", "path", "rect", "text", "title", "circle", "ellipse", "line", "polygon"]);
const ATTRIBUTES = new Set([
  "class",
  "d",
  "x",
  "y",
  "width",
  "height",
  "rx",
  "ry",
  "r",
  "cx",
  "cy",
  "x1",
  "y1",
  "x2",
  "y2",
  "points",
  "transform",
  "data-node",
  "data-edge",
  "data-child",
]);
const WORDS = {
  idle: "not reached",
  done: "done",
  running: "running",
  waiting: "waiting",
  failed: "failed",
  cancelled: "cancelled",
};

/** Rebuilds the known parts of a drawing, and drops everything else. @param {Element} source @returns {Element | null} */
function rebuilt(source) {
  if (!ALLOWED.has(source.localName)) return null;
  const copy = s(source.localName);
  for (const { name, value } of source.attributes) if (ATTRIBUTES.has(name)) copy.setAttribute(name, value);
  for (const child of source.childNodes) {
    if (child.nodeType === Node.TEXT_NODE) copy.append(child.textContent ?? "");
    else if (child instanceof Element) {
      const made = rebuilt(child);
      if (made) copy.append(made);
    }
  }
  return copy;
}

/** The graph alone of a drawing. @param {string} text @returns {Element | null} */
function drawing(text) {
  if (!text) return null;
  // Its own style is dropped, because the policy would refuse and report it.
  const bare = text.replace(/<style>[\s\S]*?<\/style>/g, "");
  const parsed = new DOMParser().parseFromString(bare, "image/svg+xml");
  const graph = parsed.querySelector("g.bf-graph");
  return graph && rebuilt(graph);
}

/** The drawing of a workflow without a run. @param {any} source @param {string} workflow @returns {HTMLElement} */
export function sketch(source, workflow) {
  const place = h("div", { class: "sketch" });
  void attempt(async () => {
    const graph = drawing((await source.representation(workflow))?.svg ?? "");
    if (!graph) return;
    fill(place, s("svg", { class: "bf-flow", role: "img", "aria-label": `Graph of ${workflow}` }, graph));
    const { x, y, width, height } = /** @type {any} */ (graph).getBBox();
    const svg = place.firstElementChild;
    svg.setAttribute("viewBox", `${x - 8} ${y - 8} ${width + 16} ${height + 16}`);
    // In its own size, so that its texts can be read.
    svg.style.setProperty("width", `${width + 16}px`);
    place.tabIndex = place.scrollHeight > place.clientHeight ? 0 : -1;
  });
  return place;
}

export class Graph {
  /** @type {Map<string, SVGGElement>} */ #nodes = new Map();
  /** @type {Map<string, {paths: Element[], badge: any, text: any}>} */ #edges = new Map();
  #box = { x: 0, y: 0, width: 1, height: 1 };
  #shown = { x: 0, y: 0, width: 1, height: 1 };
  #fitted = true;

  /** @param {import("./session.js").Session} session */
  constructor(session) {
    this.session = session;
    this.svg = s("svg", { class: "bf-flow", role: "group", "aria-label": "Graph of the workflow" });
    this.frame = h("div", { class: "graph-frame" });
    this.element = h(
      "section",
      { class: "graph pane", "aria-label": "Graph" },
      h(
        "header",
        { class: "pane-head" },
        h("h2", { text: "Graph" }),
        h("span", { class: "spring" }),
        h(
          "span",
          { class: "group" },
          button("Zoom out", () => this.#zoom(1 / 1.3), { icon: "minus", bare: true }),
          button("Zoom in", () => this.#zoom(1.3), { icon: "plus", bare: true }),
          button("Fit", () => this.fit(), { icon: "fit", bare: true }),
        ),
      ),
      this.frame,
    );
    const light = oncePerFrame(() => this.light());
    session.on("data", light);
    session.on("instant", light);
    session.on("select", light);
    session.on("filter", light);
    this.#observer = new ResizeObserver(() => this.#fitted && this.fit());
    this.#observer.observe(this.frame);
    this.#listen();
  }

  #observer;

  leave() {
    this.#observer.disconnect();
  }

  /** Shows the drawing, once there is one. */
  show() {
    const graph = drawing(this.session.representation?.svg ?? "");
    if (!graph) {
      fill(
        this.frame,
        h("p", { class: "empty", text: "The graph is drawn from the code of the workflow, which the server does not have." }),
      );
      return;
    }
    fill(this.svg, graph);
    fill(this.frame, this.svg);
    for (const node of graph.querySelectorAll("[data-node]")) this.#prepareNode(/** @type {any} */ (node));
    for (const line of graph.querySelectorAll("path.bf-line[data-edge]")) this.#prepareEdge(graph, line);
    this.#measure();
    this.fit();
    this.light();
  }

  #prepareNode(node) {
    this.#nodes.set(node.dataset.node, node);
    node.setAttribute("role", "button");
    node.setAttribute("tabindex", this.#nodes.size === 1 ? "0" : "-1");
    const shape = node.querySelector(".bf-shape");
    const width = Number(shape?.getAttribute("width")) || (shape?.getBBox?.().width ?? 60);
    const ground = s(
      "g",
      { transform: `translate(${width - 4} 0)` },
      s("rect", { y: -8, height: 16, rx: 8 }),
      s("text", { y: 3.8 }),
    );
    const place = node.getAttribute("transform");
    // Beside the node, which already contains its name.
    node.badge = s(
      "g",
      { class: "count empty", transform: place, data: { count: node.dataset.node }, "aria-hidden": "true" },
      ground,
    );
    node.parentNode.append(node.badge);
  }

  #prepareEdge(graph, line) {
    const name = line.dataset.edge;
    const head = line.nextElementSibling?.classList.contains("bf-head") ? line.nextElementSibling : null;
    const middle = line.getPointAtLength?.(
      line.getTotalLength() * (line.classList.contains("bf-call") ? 0.85 : 0.4),
    ) ?? { x: 0, y: 0 };
    const text = s("text", { y: 3.4 });
    const badge = s(
      "g",
      { class: "times", transform: `translate(${middle.x} ${middle.y})` },
      s("rect", { y: -7, height: 14, rx: 4 }),
      text,
    );
    line.parentNode.append(badge);
    this.#edges.set(name, { paths: head ? [line, head] : [line], badge, text });
  }

  #measure() {
    const box = this.svg.getBBox();
    if (box.width) this.#box = { x: box.x - 14, y: box.y - 14, width: box.width + 28, height: box.height + 28 };
  }

  /** Makes the whole graph visible, and not larger than life. */
  fit() {
    const { clientWidth: width, clientHeight: height } = this.frame;
    if (!this.svg.isConnected || !width || !height) return;
    if (this.#box.width <= 1) this.#measure();
    const scale = Math.min(1.15, width / this.#box.width, height / this.#box.height);
    const [seenWidth, seenHeight] = [width / scale, height / scale];
    this.#shown = {
      x: this.#box.x - (seenWidth - this.#box.width) / 2,
      y: this.#box.y - (seenHeight - this.#box.height) / 2,
      width: seenWidth,
      height: seenHeight,
    };
    this.#fitted = true;
    this.#look();
  }

  #look() {
    const { x, y, width, height } = this.#shown;
    this.svg.setAttribute("viewBox", `${x} ${y} ${width} ${height}`);
  }

  #zoom(factor, at = [0.5, 0.5]) {
    const { x, y, width, height } = this.#shown;
    const size = Math.max(this.#box.width / 12, Math.min(this.#box.width * 4, width / factor)) / width;
    this.#shown = {
      x: x + width * at[0] * (1 - size),
      y: y + height * at[1] * (1 - size),
      width: width * size,
      height: height * size,
    };
    this.#fitted = false;
    this.#look();
  }

  /** Gives every part the look it has at the instant. */
  light() {
    if (!this.#nodes.size) return;
    const { session } = this;
    const { nodes, edges } = graphAt(session.model, session.instant);
    const now = new Set();
    if (session.instant.newest) for (const one of session.running.values()) now.add(join(one.path, one.step));
    const { selected, filter } = session;
    const chosen = selected ? [join(selected.path, selected.step), join(selected.path, selected.type)] : [];
    for (const [name, node] of this.#nodes) {
      const known = nodes.get(name) ?? { count: 0, state: "idle" };
      const state = now.has(name) ? "running" : known.state;
      if (node.dataset.state !== state) node.dataset.state = node.badge.dataset.state = state;
      const label = name.split("/").pop();
      node.classList.toggle("chosen", chosen.includes(name));
      node.classList.toggle("narrowed", label === filter.step || label === filter.type);
      node.setAttribute("aria-label", `${name}: ${WORDS[state]}${known.count ? `, ${known.count} times` : ""}`);
      put(node.badge, known.count > 1 ? compact(known.count) : "", 10);
    }
    for (const [name, { paths, badge }] of this.#edges) {
      const times = edges.get(name) ?? across(name, nodes);
      for (const path of paths) path.classList.toggle("taken", times > 0);
      put(badge, times > 1 ? `${compact(times)}×` : "", 4);
    }
  }

  #listen() {
    const choose = (node) => {
      const name = node.dataset.node.split("/").pop();
      const { filter } = this.session;
      const step = node.classList.contains("bf-step");
      const already = (step ? filter.step : filter.type) === name;
      this.session.narrow({ step: step && !already ? name : "", type: !step && !already ? name : "" });
    };
    this.svg.addEventListener("click", (event) => {
      const node = event.target.closest("[data-node]");
      if (node && !this.dragged) choose(node);
    });
    this.svg.addEventListener("keydown", (event) => {
      const all = [...this.#nodes.values()];
      const at = all.indexOf(event.target);
      const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
      if (at < 0) return;
      if (event.key === "Enter" || event.key === " ") choose(event.target);
      else if (step) {
        const next = all[(at + step + all.length) % all.length];
        event.target.setAttribute("tabindex", "-1");
        next.setAttribute("tabindex", "0");
        next.focus();
      } else return;
      event.preventDefault();
    });
    this.frame.addEventListener(
      "wheel",
      (event) => {
        if (!event.ctrlKey && !event.metaKey) return;
        event.preventDefault();
        const box = this.frame.getBoundingClientRect();
        this.#zoom(Math.exp(-event.deltaY / 200), [
          (event.clientX - box.left) / box.width,
          (event.clientY - box.top) / box.height,
        ]);
      },
      { passive: false },
    );
    this.#drag();
  }

  #drag() {
    let from = null;
    this.frame.addEventListener("pointerdown", (event) => {
      from = { x: event.clientX, y: event.clientY, shown: this.#shown };
      this.dragged = false;
    });
    this.frame.addEventListener("pointermove", (event) => {
      if (!from || !event.buttons) return;
      const [across, down] = [event.clientX - from.x, event.clientY - from.y];
      if (Math.abs(across) + Math.abs(down) > 4) this.dragged = true;
      if (!this.dragged) return;
      const scale = this.#shown.width / this.frame.clientWidth;
      this.#shown = { ...from.shown, x: from.shown.x - across * scale, y: from.shown.y - down * scale };
      this.#fitted = false;
      this.#look();
    });
    this.frame.addEventListener("pointerup", () => {
      from = null;
    });
  }

  dragged = false;
}

/** @param {string} path @param {string} name */
const join = (path, name) => (path ? `${graphPath(path)}/${name}` : name);

/** The count of an arrow between a workflow and its child: the count of its end in the child. */
function across(name, nodes) {
  const [source, target] = name.split("->");
  if (source.split("/").length === target.split("/").length) return 0;
  return nodes.get(source.length > target.length && source.includes("/") ? source : target)?.count ?? 0;
}

/** A text on a small ground, or nothing. */
function put(badge, text, padding) {
  const place = badge.querySelector("text");
  if (place.textContent === text) return;
  place.textContent = text;
  badge.classList.toggle("empty", !text);
  const width = text.length * 6.2 + padding * 1.4;
  const ground = badge.querySelector("rect");
  ground.setAttribute("x", String(-width / 2));
  ground.setAttribute("width", String(width));
}
