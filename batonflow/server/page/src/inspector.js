// One event, or one attempt of a step, in full: its content, its causes and its effects.

import { button, fill, h } from "./dom.js";
import { brief, clock, compact, duration, hasLarge, money, shortName } from "./format.js";
import { traceback } from "./errors_view.js";
import { address, place } from "./router.js";
import { attemptRow } from "./selection.js";
import { rawJson, valueTree } from "./value_tree.js";

export class Inspector {
  /** @param {import("./session.js").Session} session @param {(commit: number) => void} fork */
  constructor(session, fork) {
    this.session = session;
    this.fork = fork;
    this.body = h("div", { class: "inspector-body" });
    this.title = h("h2", { text: "Inspector" });
    this.close = button("Close the inspector", () => session.select(null), { icon: "close", bare: true });
    this.element = h(
      "aside",
      { class: "inspector pane", "aria-label": "Inspector" },
      h("header", { class: "pane-head" }, this.title, h("span", { class: "spring" }), this.close),
      this.body,
    );
    session.on("select", () => this.show());
    this.show();
  }

  show() {
    const { selected } = this.session;
    this.element.classList.toggle("filled", Boolean(selected));
    this.close.hidden = !selected;
    this.title.textContent = selected ? shortName(selected.type) : "Inspector";
    if (selected) fill(this.body, this.#head(selected), this.#links(selected), ...this.#content(selected));
    else
      fill(
        this.body,
        h("p", {
          class: "empty",
          text: "Choose an event or a bar to see its content, its causes and its effects.",
        }),
      );
    this.body.scrollTop = 0;
  }

  /** @param {import("./model.js").Row} row */
  #head(row) {
    const { session } = this;
    const facts = [
      ["How", row.how],
      ["Step", row.step],
      ["Agent", row.agent],
      ["Child", row.path],
      ["Time", clock(row.at)],
      ["Commit", row.commit],
      ["Stream", row.seq === null ? "" : row.event?.last_seq > row.seq ? `${row.seq}–${row.event.last_seq}` : row.seq],
      ["Class", row.event?.qualified_name ?? (row.kind === "failure" ? row.type : "")],
    ];
    const { attempt } = row;
    if (attempt) {
      facts.push(["Took", duration(attempt.end - attempt.began)], ["Ended", attempt.state]);
      if (attempt.attempt) facts.push(["Attempt", attempt.attempt + 1]);
    }
    const actions = [];
    if (row.commit !== null && row.commit < session.model.lastCommit) {
      actions.push(button("Go to this moment", () => session.goTo(row.commit), { class: "quiet" }));
    }
    if (row.commit !== null && !session.source.embedded)
      actions.push(button("Fork from here", () => this.fork(row.commit), { icon: "fork", class: "quiet" }));
    return [
      h(
        "dl",
        { class: "facts" },
        facts
          .filter(([, value]) => value !== "" && value !== null && value !== undefined)
          .map(([name, value]) => h("div", {}, h("dt", { text: name }), h("dd", { text: value }))),
      ),
      actions.length > 0 && h("div", { class: "actions start" }, actions),
    ].filter(Boolean);
  }

  /** @param {import("./model.js").Row} row */
  #links(row) {
    const { session } = this;
    const { model } = session;
    const causes = model
      .causesOf(row)
      .map((cause) =>
        link(`${cause.step || "run"} → ${shortName(cause.type)}`, brief(cause.value ?? {}, 70), () =>
          session.select(cause),
        ),
      );
    const effects = model
      .effectsOf(row)
      .map((attempt) =>
        link(attempt.step, `${duration(attempt.end - attempt.began)} · ${attempt.state}`, () =>
          session.select(attemptRow(model, attempt)),
        ),
      );
    const made =
      row.how === "attempt"
        ? model
            .rowsOf(row.attempt)
            .map((one) => link(shortName(one.type), brief(one.value ?? {}, 70), () => session.select(one)))
        : [];
    const own =
      row.attempt && row.how !== "attempt" && row.entry?.kind === "segment"
        ? [
            link(row.attempt.step, `${duration(row.attempt.end - row.attempt.began)} · ${row.attempt.state}`, () =>
              session.select(attemptRow(model, row.attempt)),
            ),
          ]
        : [];
    return h(
      "div",
      { class: "links" },
      group("Caused by", causes),
      group("Made in", own),
      group("Led to", effects),
      group("Made", made),
    );
  }

  /** @param {import("./model.js").Row} row */
  #content(row) {
    const parts = [];
    const { entry } = row;
    if (row.kind === "failure") parts.push(traceback(entry.outcome));
    else if (row.value !== undefined) {
      parts.push(
        h("h3", { text: "Value" }),
        valueTree(row.value, { open: 3, fetch: this.#fetching(row) }),
        rawJson(row.value),
      );
    }
    const shown = row.how === "attempt" ? row.attempt.entries : entry && row.kind !== "event" ? [entry] : [];
    const calls = row.how === "attempt" ? shown.flatMap((one) => (one.calls ?? []).map((call, at) => [call, `${one.id}:${at}`])) : [];
    if (calls.length) parts.push(h("h3", { text: "Calls of models" }), ...calls.map(([call, key]) => modelCall(call, key)));
    const writes = shown.flatMap((one) => one.writes ?? []);
    if (writes.length) {
      const table = Object.fromEntries(writes.map((write) => [write.path, write.deleted ? null : write.value]));
      parts.push(h("h3", { text: "Written to the state" }), valueTree(table, { open: 1 }));
    }
    if (row.how === "attempt") {
      for (const one of row.attempt.entries) if (one.outcome?.kind === "failed") parts.push(traceback(one.outcome));
      const wait = row.attempt.entries.map((one) => one.outcome).filter((outcome) => outcome?.kind === "waiting");
      for (const one of wait)
        parts.push(
          h("h3", { text: "Waited for" }),
          valueTree({ event: shortName(one.awaits), requirements: one.requirements }, { open: 2 }),
        );
    }
    return parts;
  }

  /** The loader of the rest of a row's value. @param {import("./model.js").Row} row */
  #fetching(row) {
    if (this.session.source.embedded || !row.entry || !hasLarge(row.value)) return null;
    return async () => {
      await this.session.whole(row.entry);
      return row.value;
    };
  }
}

/** A call of a model in one line, with a link to its page. @param {import("./model.js").ModelCall} call @param {string} key */
function modelCall({ model, vendor, usage, took, first, finish, error }, key) {
  const facts = [
    vendor !== model && vendor,
    usage && `${compact(usage.input_tokens ?? 0)} → ${compact(usage.output_tokens ?? 0)} tokens`,
    typeof usage?.cost === "number" && money(usage.cost),
    duration(took),
    first !== undefined && `first piece ${duration(first)}`,
    finish && `ended by ${finish}`,
  ];
  return h(
    "section",
    { class: "model-call" },
    h("p", {}, h("b", { text: model }), h("span", { class: "muted", text: ` ${facts.filter(Boolean).join(" · ")}` })),
    error && h("p", { class: "failure-text", text: error }),
    h("a", { class: "button", href: address({ ...place(), call: key }), "data-call": key, text: "Open the call" }),
  );
}

/** @param {string} title @param {Node[]} links */
function group(title, links) {
  if (!links.length) return null;
  const more = links.slice(30);
  return h(
    "section",
    {},
    h("h3", { text: title }),
    h(
      "ul",
      { class: "link-list" },
      links.slice(0, 30).map((one) => h("li", {}, one)),
    ),
    more.length > 0 && h("p", { class: "muted", text: `and ${more.length} more` }),
  );
}

/** @param {string} name @param {string} note @param {() => void} pressed */
function link(name, note, pressed) {
  return h(
    "button",
    { type: "button", class: "link", on: { click: pressed } },
    h("b", { text: name }),
    h("span", { text: note }),
  );
}
