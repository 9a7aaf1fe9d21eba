// Memory of agents at the chosen instant: conversations in the state, as messages.

import { attempt, button, fill, h } from "./dom.js";
import { hasLarge } from "./format.js";
import { pathsWithState, stateAt } from "./instants.js";
import { messageCard, messagesIn } from "./chat.js";

const SHOWN = 80;

export class MemoryView {
  #round = 0;

  /** @param {import("./session.js").Session} session */
  constructor(session) {
    this.session = session;
    this.element = h("div", { class: "memory scroll", tabindex: 0 });
  }

  show() {
    const round = ++this.#round;
    const { model, instant } = this.session;
    const found = [];
    for (const path of pathsWithState(model)) {
      for (const kept of stateAt(model, path, instant.commit).values()) {
        if (kept.deleted) continue;
        const left = kept.name === "memory" && hasLarge(kept.value);
        const messages = messagesIn(kept.value);
        if (left && !messages && !this.session.source.embedded) void this.#load(kept, round);
        if (messages || left) found.push(this.#conversation(path, kept, messages));
      }
    }
    fill(
      this.element,
      found.length ? found : h("p", { class: "empty", text: "No conversation is kept in the state at this moment." }),
    );
  }

  /** Asks once for a memory that was too large to come along. */
  async #load(kept, round) {
    await attempt(() => this.session.whole(kept.entry));
    if (
      round === this.#round &&
      !hasLarge(stateAt(this.session.model, kept.entry.path, kept.commit).get(kept.name)?.value)
    )
      this.show();
  }

  /** @param {string} path @param {import("./instants.js").Kept} kept @param {any[] | null} messages */
  #conversation(path, kept, messages) {
    const title = h(
      "header",
      { class: "sub-head" },
      h("h3", { text: [path, kept.name].filter(Boolean).join(" / ") }),
      h("span", {
        class: "muted",
        text: messages ? `${messages.length} messages · commit ${kept.commit}` : "too large to be kept in this file",
      }),
    );
    const fresh = new Set((messagesIn(kept.before) ?? []).map((message) => JSON.stringify(message)));
    const now = kept.commit === this.session.instant.commit && fresh.size > 0;
    const cards = (messages ?? []).slice(-SHOWN).map((message) => {
      const card = messageCard(message);
      if (now && !fresh.has(JSON.stringify(message))) card.classList.add("fresh");
      return card;
    });
    const before = (messages ?? []).slice(0, -SHOWN);
    const more = button(`${before.length} earlier`, () => more.replaceWith(...before.slice(-SHOWN).map(messageCard)), {
      class: "quiet",
    });
    return h("section", { class: "conversation" }, title, before.length > 0 && more, cards);
  }
}
