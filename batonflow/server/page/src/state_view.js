// The key-value state of the run and of its children at the chosen instant, with its changes.

import { button, fill, h } from "./dom.js";
import { brief, hasLarge } from "./format.js";
import { differences, pathsWithState, stateAt } from "./instants.js";
import { valueTree } from "./value_tree.js";

const SHOWN = 120;

export class StateView {
  path = "";
  changedOnly = false;

  /** @param {import("./session.js").Session} session */
  constructor(session) {
    this.session = session;
    this.element = h("div", { class: "state" });
  }

  show() {
    const { session } = this;
    const { model, instant } = session;
    const paths = pathsWithState(model);
    const state = [...stateAt(model, this.path, instant.commit).values()];
    // The latest changes are first.
    state.sort((one, other) => Number(other.commit === instant.commit) - Number(one.commit === instant.commit));
    const kept = state.filter((one) => !this.changedOnly || one.commit === instant.commit).slice(0, SHOWN);
    const select = h(
      "select",
      {
        "aria-label": "Workflow",
        on: {
          change: () => {
            this.path = select.value;
            this.show();
          },
        },
      },
      paths.map((path) => h("option", { value: path, text: path || "the run", selected: path === this.path })),
    );
    const only = button(
      "Changed here",
      () => {
        this.changedOnly = !this.changedOnly;
        this.show();
      },
      { class: "toggle" },
    );
    only.setAttribute("aria-pressed", String(this.changedOnly));
    const changed = state.filter((one) => one.commit === instant.commit).length;
    const head = h(
      "div",
      { class: "filters" },
      paths.length > 1 && select,
      h("span", {
        class: "muted",
        text: `after commit ${instant.commit} · ${changed ? `${changed} changed` : "nothing changed"} in it`,
      }),
      h("span", { class: "spring" }),
      only,
      button("Change before", () => this.#toChange(-1), { class: "quiet" }),
      button("Next change", () => this.#toChange(1), { class: "quiet" }),
    );
    const empty =
      !kept.length &&
      h("p", {
        class: "empty",
        text: state.length ? "Nothing changed in this commit." : "The state is empty at this moment.",
      });
    fill(
      this.element,
      head,
      h(
        "div",
        { class: "scroll", tabindex: 0 },
        empty,
        kept.map((one) => this.#line(one, instant.commit)),
        state.length > kept.length &&
          !this.changedOnly &&
          h("p", { class: "muted", text: `${state.length - kept.length} further names are hidden.` }),
      ),
    );
  }

  /** @param {import("./instants.js").Kept} kept @param {number} commit */
  #line(kept, commit) {
    const now = kept.commit === commit;
    const value = kept.deleted
      ? h("span", { class: "muted", text: "deleted" })
      : valueTree(kept.value, { open: now ? 1 : 0, fetch: this.#fetching(kept) });
    return h(
      "article",
      { class: now ? "entry changed" : "entry" },
      h(
        "header",
        {},
        h("h3", { text: kept.name }),
        h("span", { class: "spring" }),
        h("button", {
          type: "button",
          class: "link-text",
          text: `commit ${kept.commit}`,
          title: "Go to the commit that wrote this",
          on: { click: () => this.session.goTo(kept.commit) },
        }),
      ),
      value,
      now && changes(kept),
    );
  }

  /** @param {import("./instants.js").Kept} kept */
  #fetching(kept) {
    if (this.session.source.embedded || !hasLarge(kept.value)) return null;
    return async () => {
      const entry = await this.session.whole(kept.entry);
      return entry?.writes?.findLast((write) => write.path === kept.name)?.value;
    };
  }

  /** Goes to the next commit, or the one before, that wrote state. @param {1 | -1} direction */
  #toChange(direction) {
    const { model, instant } = this.session;
    const commits = model.entries
      .filter((entry) => entry.path === this.path && entry.writes?.length)
      .map((entry) => entry.commit);
    const next =
      direction > 0
        ? commits.find((commit) => commit > instant.commit)
        : commits.findLast((commit) => commit < instant.commit);
    if (next !== undefined) this.session.goTo(next);
  }
}

/** @param {import("./instants.js").Kept} kept */
function changes(kept) {
  const whole = kept.before === undefined;
  const found = whole ? [] : differences(kept.before, kept.deleted ? undefined : kept.value);
  if (!found.length) return h("p", { class: "muted", text: whole ? "new" : "written again, unchanged" });
  const side = (css, sign, value) =>
    h(
      "div",
      { class: css },
      h("span", { "aria-hidden": "true", text: sign }),
      h("span", { text: value === undefined ? "nothing" : brief(value, 300) }),
    );
  return h(
    "ul",
    { class: "changes" },
    found
      .slice(0, 40)
      .map(({ where, before, after }) =>
        h(
          "li",
          {},
          where && h("code", { text: where }),
          before !== undefined && side("gone", "−", before),
          after !== undefined && side("come", "+", after),
        ),
      ),
  );
}
