// Actions on a run: cancel, fork, save as a file.

import { attempt, button, dialog, h, notice } from "./dom.js";
import { stateAt } from "./instants.js";
import { isOver } from "./model.js";
import { address } from "./router.js";
import { jsonField } from "./schema_form.js";

/** @param {import("./session.js").Session} session */
export function cancelDialog(session) {
  const body = h(
    "div",
    { class: "stack" },
    h("p", { text: "Running steps are interrupted. Committed data stays." }),
    h(
      "div",
      { class: "actions" },
      button("Keep running", () => box.close()),
      button(
        "Cancel the run",
        () => {
          box.close();
          void attempt(async () => {
            await session.source.cancel(session.id);
            session.refresh();
          });
        },
        { class: "danger" },
      ),
    ),
  );
  const box = dialog("Cancel this run?", body, "small");
}

/** Lets a held run be taken up again. @param {import("./session.js").Session} session */
export async function releaseRun(session) {
  await session.source.release(session.id);
  notice("Released. It can be taken up again.");
  session.refresh();
}

/** @param {import("./session.js").Session} session @param {number} commit */
export async function forkDialog(session, commit) {
  // A run cannot go on from its end.
  if (isOver(session.handler)) commit = Math.min(commit, Math.max(1, session.handler.commits - 1));
  const kept = [...stateAt(session.model, "", commit).values()].filter((one) => !one.deleted);
  for (const one of kept) {
    if (!JSON.stringify(one.value ?? null).includes('"$large"')) continue;
    const entry = await session.whole(one.entry);
    one.value = entry?.writes?.findLast((write) => write.path === one.name)?.value;
  }
  const before = Object.fromEntries(kept.map((one) => [one.name, one.value]));
  const state = jsonField("State after this commit", before, { rows: 14 });
  const send = h("button", { class: "button primary", text: "Fork" });
  const form = h(
    "form",
    { class: "stack" },
    h("p", {
      class: "hint",
      text: "A new run goes on from here; this one stays as it is. Only names that you change are written.",
    }),
    h("p", {}, "After commit ", h("strong", { text: String(commit) }), ". Move the scrubber to choose another one."),
    state.element,
    h("div", { class: "actions" }, send),
  );
  const box = dialog("Fork this run", form);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const wanted = state.read();
    if (!wanted) return;
    const changed = Object.fromEntries(
      Object.entries(wanted).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(before[name])),
    );
    void attempt(async () => {
      const run = await session.source.fork(session.id, commit, changed);
      const link = h("a", {
        href: address({ run: run.handler_id }),
        class: "button primary",
        text: "Open the new run",
        on: { click: () => box.close() },
      });
      form.replaceChildren(
        h("p", {}, "Forked as ", h("code", { text: run.handler_id })),
        h("div", { class: "actions" }, link),
      );
      link.focus();
    });
  });
}

// In pieces, because this text is itself inside a script element.
const PLACE = ["<", 'script type="application/json" id="run"></', "script>"].join("");
const POLICY = '<meta name="policy"';

/** Saves the run, with this page around it, as one file. @param {import("./session.js").Session} session */
export async function exportRun(session) {
  const page = await session.source.page();
  const { handler, representation } = session;
  const data = JSON.stringify({ handler, representation, ...(await session.source.shared(session.id)) }).replaceAll("<", "\\u003c");
  const [opening, closing] = PLACE.split("></");
  // A function, because the text may contain replacement patterns.
  const file = page
    .replace(PLACE, () => `${opening}>${data}</${closing}`)
    .replace(POLICY, '<meta http-equiv="Content-Security-Policy"');
  const link = h("a", {
    href: URL.createObjectURL(new Blob([file], { type: "text/html" })),
    download: `${safeName(session.id)}.html`,
  });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  notice("Exported as one file.");
}

/** @param {string} id */
const safeName = (id) => id.replace(/[^\w.-]+/g, "-").slice(0, 80) || "run";
