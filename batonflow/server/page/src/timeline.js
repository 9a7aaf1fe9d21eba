// The timeline: a lane for each step or agent, bars for attempts, ticks for events, and the scrubber.

import { button, fill, h, oncePerFrame } from "./dom.js";
import { clock, duration, gist } from "./format.js";
import { lanesOf, ROW } from "./lanes.js";
import { arrow, bar, colour, forgetColours, grid, sized } from "./paint.js";
import { Scale } from "./scale.js";
import { attemptRow } from "./selection.js";

const RULER = 24;
const LEFT = 8;
const EDGE = 26;
const MOST_ZOOM = 200_000;
const PLAYING = 6000;

export class Timeline {
  by = "steps";
  squeeze = true;
  /** The visible part, in units of the scale; null shows all. @type {[number, number] | null} */ window = null;
  #lanes = [];
  #colours = new Map();
  #height = 0;
  #playing = 0;

  /** @param {import("./session.js").Session} session */
  constructor(session) {
    this.session = session;
    this.canvas = h("canvas", { class: "tl-canvas", "aria-hidden": "true" });
    this.ruler = h("canvas", { class: "tl-ruler", "aria-hidden": "true" });
    this.veil = h("div", { class: "tl-veil" });
    this.line = h("div", { class: "tl-line" });
    this.tip = h("div", { class: "tl-tip", role: "status" });
    this.tip.hidden = true;
    this.labels = h("div", { class: "tl-labels", role: "group", "aria-label": "Lanes" });
    this.knob = h("div", {
      class: "tl-knob",
      role: "slider",
      tabindex: 0,
      "aria-label": "Chosen moment",
      "aria-valuemin": 0,
      "aria-valuemax": 0,
      "aria-valuenow": 0,
      on: { keydown: (event) => this.#key(event) },
    });
    this.where = h("span", { class: "tl-where muted", "aria-live": "off" });
    this.track = h("div", { class: "tl-track" }, this.ruler, this.knob);
    this.area = h("div", { class: "tl-area" }, this.canvas, this.veil);
    this.element = h(
      "section",
      { class: "timeline pane", "aria-label": "Timeline" },
      this.#toolbar(),
      h("div", { class: "tl-head" }, h("div", { class: "tl-corner" }), this.track),
      h("div", { class: "tl-body", tabindex: -1 }, this.labels, this.area),
      this.line,
      this.tip,
    );
    this.#listen();
    this.draw = oncePerFrame(() => this.#draw());
    const arrange = oncePerFrame(() => this.#arrange());
    session.on("data", arrange);
    session.on("select", this.draw);
    session.on("instant", () => this.#place());
    session.on("filter", () => this.#markLanes());
    this.#observer = new ResizeObserver(() => this.draw());
    this.#observer.observe(this.area);
    this.#pulse = setInterval(() => session.live && session.loaded && this.draw(), 500);
    document.addEventListener("themechange", this.#repaint);
  }

  #observer;
  #pulse;
  #repaint = () => {
    forgetColours();
    this.draw();
  };

  leave() {
    this.#observer.disconnect();
    clearInterval(this.#pulse);
    cancelAnimationFrame(this.#playing);
    document.removeEventListener("themechange", this.#repaint);
  }

  #toolbar() {
    const { session } = this;
    const lanes = button(
      "By agent",
      () => {
        this.by = this.by === "steps" ? "agents" : "steps";
        lanes.setAttribute("aria-pressed", String(this.by === "agents"));
        this.#arrange();
      },
      { class: "toggle" },
    );
    lanes.setAttribute("aria-pressed", "false");
    lanes.hidden = true;
    const squeeze = button(
      "Squeeze waits",
      () => {
        this.squeeze = !this.squeeze;
        squeeze.setAttribute("aria-pressed", String(this.squeeze));
        this.window = null;
        this.draw();
      },
      { class: "toggle", title: "Shorten long stretches without activity" },
    );
    squeeze.setAttribute("aria-pressed", "true");
    this.agentsToggle = lanes;
    this.squeezeToggle = squeeze;
    this.playButton = button("Replay", () => this.#play(), { icon: "play", bare: true });
    this.newest = button("Newest", () => session.goTo(null), { class: "toggle", title: "Show the newest state (End)" });
    return h(
      "header",
      { class: "pane-head" },
      h("h2", { text: "Timeline" }),
      this.where,
      this.newest,
      h("span", { class: "spring" }),
      lanes,
      squeeze,
      h(
        "span",
        { class: "group" },
        button("Earlier", () => session.move(-1), { icon: "back", bare: true }),
        this.playButton,
        button("Later", () => session.move(1), { icon: "on", bare: true }),
      ),
      h(
        "span",
        { class: "group" },
        button("Zoom out", () => this.zoom(0.5), { icon: "minus", bare: true }),
        button("Zoom in", () => this.zoom(2), { icon: "plus", bare: true }),
        button("Show all", () => this.#all(), { icon: "fit", bare: true }),
      ),
    );
  }

  #all() {
    this.window = null;
    this.draw();
  }

  /** @param {number} factor @param {number} [x] the place that stays where it is, in pixels */
  zoom(factor, x = this.width / 2) {
    const view = this.view;
    const [from, to] = this.window ?? [0, view.scale.length];
    const fixed = from + (x / this.width) * (to - from);
    const length = Math.max(view.scale.length / MOST_ZOOM, (to - from) / factor);
    this.#show(fixed - (x / this.width) * length, length);
  }

  /** @param {number} from @param {number} length */
  #show(from, length) {
    const all = this.view.scale.length;
    const start = Math.max(0, Math.min(from, all - length));
    this.window = length >= all ? null : [start, start + length];
    this.draw();
  }

  get width() {
    return this.area.clientWidth || 1;
  }

  get end() {
    const { session } = this;
    return session.live ? Math.max(session.model.to, Date.now() / 1000) : session.model.to;
  }

  /** @returns {import("./paint.js").View} */
  get view() {
    const { model, running } = this.session;
    const spans = model.attempts
      .flatMap((attempt) => attempt.stretches.filter((one) => !one.wait && one.to >= model.from))
      .map((one) => ({ ...one, from: Math.max(one.from, model.from) }));
    for (const one of running.values()) spans.push({ from: one.began, to: this.end, wait: false });
    const key = `${spans.length} ${this.end} ${this.squeeze}`;
    if (this.#scaleKey !== key) {
      this.#scaleKey = key;
      this.#scale = new Scale(Number.isFinite(model.from) ? model.from : 0, this.end, spans, this.squeeze);
    }
    const scale = this.#scale;
    const [from, to] = this.window ?? [0, scale.length];
    const { width } = this;
    const inner = width - EDGE;
    const x = (time) => ((scale.unit(time) - from) / (to - from)) * inner + LEFT;
    return { x, width, scale, perPixel: (to - from) / inner };
  }

  #scaleKey = "";
  /** @type {any} */ #scale = null;

  /** @param {number} x pixels */
  #timeAt(x) {
    const { scale } = this.view;
    const [from, to] = this.window ?? [0, scale.length];
    return scale.time(from + ((x - LEFT) / (this.width - EDGE)) * (to - from));
  }

  #arrange() {
    const { lanes, height, colours } = lanesOf(this.session, this.by);
    this.#lanes = lanes;
    this.#colours = colours;
    this.#height = height;
    this.agentsToggle.hidden = !this.session.model.attempts.some((attempt) => attempt.agent);
    const names = lanes.map((lane) => lane.key).join("\r");
    if (this.labels.dataset.names !== names || this.labels.dataset.height !== String(height)) {
      Object.assign(this.labels.dataset, { names, height: String(height) });
      fill(
        this.labels,
        lanes.map((lane) => this.#label(lane)),
      );
      this.#markLanes();
    }
    this.#draw();
  }

  #label(lane) {
    const note = lane.note && h("small", { text: lane.note });
    const press = () => {
      const { filter } = this.session;
      this.session.narrow({ step: lane.step && filter.step !== lane.step ? lane.step : "" });
    };
    const dot = lane.step ? h("i", { class: `dot tint-${lane.colour}`, "aria-hidden": "true" }) : null;
    const props = {
      class: "tl-label",
      type: "button",
      title: lane.note ? `${lane.note} / ${lane.label}` : lane.label,
      data: { step: lane.step },
      style: { height: `${lane.height}px` },
      on: { click: press },
    };
    if (!lane.step)
      return h(
        "div",
        { class: "tl-label", style: props.style, title: props.title },
        note,
        h("span", { text: lane.label }),
      );
    return h("button", props, dot, note, h("span", { text: lane.label }));
  }

  #markLanes() {
    for (const label of this.labels.querySelectorAll("button")) {
      label.setAttribute("aria-pressed", String(label.dataset.step === this.session.filter.step));
    }
  }

  #draw() {
    if (!this.element.isConnected || !this.area.clientWidth) return;
    const { view } = this;
    this.squeezeToggle.hidden = this.squeeze && !view.scale.gaps.length;
    const ruler = sized(this.ruler, this.width, RULER);
    grid(ruler, view, RULER, true);
    const context = sized(this.canvas, this.width, this.#height);
    for (const lane of this.#lanes) {
      context.fillStyle = colour("line");
      context.fillRect(0, lane.top + lane.height - 1, this.width, 1);
    }
    grid(context, view, this.#height, false);
    this.#drawRun(context, view);
    for (const lane of this.#lanes) this.#drawLane(context, view, lane);
    this.#drawLinks(context, view);
    this.#place();
  }

  /** The lane of the whole run, with events from outside. */
  #drawRun(context, view) {
    const { session } = this;
    const [lane] = this.#lanes;
    if (!lane || !session.model.entries.length) return;
    const y = lane.top + lane.height / 2 - 1;
    const [from, to] = [view.x(session.model.from), view.x(this.end)];
    context.fillStyle = colour("faint");
    context.globalAlpha = 0.35;
    context.fillRect(Math.max(0, from), y - 1, Math.min(to, this.width) - Math.max(0, from), 2);
    context.globalAlpha = 1;
    for (const row of session.model.rows) {
      if (row.step || row.kind !== "event") continue;
      const x = view.x(row.at);
      if (x < -5 || x > this.width + 5) continue;
      context.fillStyle = colour(row.type.includes("Failed") || row.type.includes("TimedOut") ? "failed" : "accent");
      context.beginPath();
      context.moveTo(x, y - 5);
      context.lineTo(x + 5, y);
      context.lineTo(x, y + 5);
      context.lineTo(x - 5, y);
      context.fill();
    }
  }

  #drawLane(context, view, lane) {
    const { session } = this;
    const chosen = session.selected?.attempt;
    const drawn = new Array(lane.rows).fill(-1);
    for (const attempt of lane.attempts) {
      const row = lane.rowOf.get(attempt) ?? 0;
      const until =
        session.live && (attempt.state === "waiting" || attempt.state === "running") ? this.end : attempt.end;
      const right = view.x(until);
      // Of many bars on one pixel one is enough.
      if (right <= drawn[row] && attempt.state !== "failed" && attempt !== chosen) continue;
      const y = lane.top + 2 + row * ROW;
      const tint = colour(attempt.entries.length ? `tint-${this.#colours.get(attempt.step) ?? 0}` : "running");
      const text = !attempt.entries.length ? "running" : lane.step ? this.#about(attempt) : attempt.step;
      bar(context, view, attempt, y, tint, { selected: attempt === chosen, text, until });
      drawn[row] = Math.floor(right) + 1;
    }
    this.#ticks(context, view, lane);
  }

  /** The distinctive text of a bar in its lane. */
  #about(attempt) {
    const { model } = this.session;
    const [cause] = attempt.causes;
    const event = cause && model.byId.get(cause[0])?.events?.find((one) => one.number === cause[1]);
    const name = event?.value?.tool_name ?? (attempt.agent || gist(event?.value));
    return attempt.attempt ? `attempt ${attempt.attempt + 1} · ${name}` : name;
  }

  /** Events that steps put on the stream. */
  #ticks(context, view, lane) {
    let last = -1;
    context.fillStyle = colour("muted");
    for (const attempt of lane.attempts) {
      if (view.x(attempt.end) < 0 || view.x(attempt.began) > this.width) continue;
      const y = lane.top + 2 + (lane.rowOf.get(attempt) ?? 0) * ROW + ROW - 4;
      for (const entry of attempt.entries) {
        for (const event of entry.events ?? []) {
          if (event.ts === undefined) continue;
          const x = Math.round(view.x(event.ts));
          if (x <= last + 1) continue;
          last = x;
          context.fillRect(x, y + 0.5, 1.5, 3);
        }
      }
    }
  }

  /** The causes and the effects of the selection. */
  #drawLinks(context, view) {
    const { selected, model } = this.session;
    if (!selected) return;
    const own = this.#spot(view, selected);
    if (!own) return;
    for (const cause of model.causesOf(selected)) {
      const from = this.#spot(view, cause);
      if (from) arrow(context, [from[1], from[2]], [own[0], own[2]]);
    }
    for (const effect of model.effectsOf(selected).slice(0, 40)) {
      const to = this.#spot(view, { attempt: effect });
      if (to) arrow(context, [own[1], own[2]], [to[0], to[2]]);
    }
  }

  /** Left, right and middle of an item. */
  #spot(view, { attempt, at }) {
    const lane = attempt ? this.#lanes.find((one) => one.rowOf.has(attempt)) : this.#lanes[0];
    if (!lane) return null;
    if (!attempt) return [view.x(at), view.x(at), lane.top + lane.height / 2 - 1];
    return [
      view.x(attempt.began),
      Math.max(view.x(attempt.began) + 2, view.x(attempt.end)),
      lane.top + (lane.rowOf.get(attempt) ?? 0) * ROW + ROW / 2,
    ];
  }

  /** Moves the scrubber to the chosen instant. */
  #place() {
    const { session } = this;
    const { model, instant } = session;
    const place = instant.newest ? model.commits.length - 1 : model.placeOf(instant.commit);
    const time = instant.newest ? this.end : instant.time;
    const x = Math.max(-8, Math.min(this.width + 8, this.view.x(time)));
    const left = this.area.offsetLeft + x;
    this.knob.style.transform = `translateX(${x}px)`;
    this.line.style.transform = `translateX(${left}px)`;
    this.line.hidden = x < 0 || x > this.width;
    this.veil.style.left = `${x}px`;
    this.veil.hidden = instant.newest;
    this.newest.hidden = instant.newest;
    const position = model.entries.length
      ? `commit ${instant.commit}, ${duration((instant.newest ? model.to : time) - model.from)} after the start`
      : "";
    this.knob.setAttribute("aria-valuemax", String(Math.max(0, model.commits.length - 1)));
    this.knob.setAttribute("aria-valuenow", String(Math.max(0, place)));
    this.knob.setAttribute("aria-valuetext", position || "nothing yet");
    this.where.textContent = instant.newest ? "" : `${position} · ${clock(time)}`;
  }

  #key(event) {
    const { session } = this;
    const { model } = session;
    const tenth = Math.max(1, Math.round(model.commits.length / 10));
    const act = {
      ArrowLeft: () => session.move(-1),
      ArrowDown: () => session.move(-1),
      ArrowRight: () => session.move(1),
      ArrowUp: () => session.move(1),
      PageDown: () => session.move(-tenth),
      PageUp: () => session.move(tenth),
      Home: () => session.goTo(model.commits[0]?.commit ?? null),
      End: () => session.goTo(null),
      "+": () => this.zoom(2),
      "-": () => this.zoom(0.5),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  #listen() {
    const { session } = this;
    const scrub = (event) => {
      const x = event.clientX - this.area.getBoundingClientRect().left;
      const time = this.#timeAt(x);
      session.goTo(time >= session.model.to ? null : session.model.commitAt(time));
    };
    this.track.addEventListener("pointerdown", (event) => {
      this.track.setPointerCapture(event.pointerId);
      scrub(event);
      this.knob.focus({ preventScroll: true });
      event.preventDefault();
    });
    this.track.addEventListener(
      "pointermove",
      (event) => this.track.hasPointerCapture(event.pointerId) && scrub(event),
    );
    this.area.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    this.track.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    this.area.addEventListener("pointermove", (event) => this.#point(event));
    this.area.addEventListener("pointerleave", () => {
      this.tip.hidden = true;
    });
    this.area.addEventListener("click", (event) => {
      const attempt = this.#attemptAt(event);
      if (attempt) session.select(attemptRow(session.model, attempt));
    });
  }

  #wheel(event) {
    const sideways = event.shiftKey ? event.deltaY : event.deltaX;
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      this.zoom(Math.exp(-event.deltaY / 200), event.clientX - this.area.getBoundingClientRect().left);
    } else if (sideways && this.window) {
      event.preventDefault();
      const [from, to] = this.window;
      this.#show(from + (sideways / this.width) * (to - from), to - from);
    }
  }

  #attemptAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const lane = this.#lanes.find((one) => y >= one.top && y < one.top + one.height);
    if (!lane) return null;
    const row = Math.min(lane.rows - 1, Math.floor((y - lane.top - 1) / ROW));
    const { view } = this;
    let found = null;
    let nearest = 5;
    for (const attempt of lane.attempts) {
      if (lane.rowOf.get(attempt) !== row || !attempt.entries.length) continue;
      const away = Math.max(view.x(attempt.began) - x, x - view.x(attempt.end), 0);
      if (away < nearest) [found, nearest] = [attempt, away];
    }
    return found;
  }

  #point(event) {
    const attempt = event.pointerType === "touch" ? null : this.#attemptAt(event);
    this.tip.hidden = !attempt;
    this.area.classList.toggle("over-bar", Boolean(attempt));
    if (!attempt) return;
    const waits = attempt.stretches.filter((one) => one.wait).reduce((sum, one) => sum + one.to - one.from, 0);
    const facts = [
      `${duration(attempt.end - attempt.began)}`,
      waits ? `${duration(waits)} of it waiting` : "",
      attempt.agent,
      attempt.state,
    ];
    fill(this.tip, h("b", { text: labelOf(attempt) }), h("span", { text: facts.filter(Boolean).join(" · ") }));
    const box = this.element.getBoundingClientRect();
    const left = Math.min(event.clientX - box.left + 12, box.width - this.tip.offsetWidth - 8);
    this.tip.style.transform = `translate(${left}px, ${event.clientY - box.top + 14}px)`;
  }

  /** Lets the run go by once more. */
  #play() {
    const { session } = this;
    if (this.#playing) {
      cancelAnimationFrame(this.#playing);
      this.#playing = 0;
      return;
    }
    const { scale } = this.view;
    const start = session.commit === null ? 0 : scale.unit(session.instant.time);
    const began = performance.now();
    const turn = (now) => {
      const unit = start + ((now - began) / PLAYING) * scale.length;
      if (unit >= scale.length || !this.element.isConnected) {
        this.#playing = 0;
        session.goTo(null);
        return;
      }
      session.goTo(session.model.commitAt(scale.time(unit)));
      this.#playing = requestAnimationFrame(turn);
    };
    this.#playing = requestAnimationFrame(turn);
  }
}

/** @param {import("./model.js").Attempt} attempt */
function labelOf(attempt) {
  const again = attempt.attempt ? ` · attempt ${attempt.attempt + 1}` : "";
  return `${attempt.step}${attempt.agent ? ` · ${attempt.agent}` : ""}${again}`;
}
