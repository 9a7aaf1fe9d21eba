// Open questions and approvals: banners, and forms for answers.

import { attempt, button, dialog, fill, h, notice } from "./dom.js";
import { brief, fieldsOf, shortName } from "./format.js";
import { eitherForm, jsonField } from "./schema_form.js";
import { valueTree } from "./value_tree.js";

/** @typedef {{id: string, event: any, schema: any, response_type: string, filled: any, path: string, kind: string}} Request */

/** @typedef {{source: any, id: string, refresh: () => void}} Asker the run that asks, as `Session` */

/** @param {Request} request */
export const isApproval = (request) =>
  request.kind === "approval" ||
  ("approved" in (request.schema?.properties ?? {}) && request.event?.value?.tool_name !== undefined);

/** @param {Request} request */
export function question(request) {
  const value = fieldsOf(request.event?.value);
  if (isApproval(request)) return `${value.agent ? `${value.agent} asks` : "Approval is asked"} for ${value.tool_name}`;
  return value.prefix || value.question || value.message || brief(value, 160) || shortName(request.event?.type);
}

/** @param {import("./session.js").Session} session @param {HTMLElement} place */
export function showPending(session, place) {
  const { pending, model, handler } = session;
  if (pending.length) {
    fill(
      place,
      pending.slice(0, 8).map((request) => banner(session, request)),
      pending.length > 8 && h("p", { class: "muted", text: `and ${pending.length - 8} more` }),
    );
    return;
  }
  // In a file, and without the code of the workflow, only the records contain the waits of the run.
  const recorded = session.source.embedded || session.representation === null;
  const waits = handler.status === "running" && recorded ? model.openWaits() : [];
  fill(
    place,
    waits.map(({ attempt: one, entry, question: asked }) =>
      h(
        "div",
        { class: "banner waiting", role: "status" },
        h("span", { class: "pill", text: "Waiting" }),
        h("b", { text: asked?.value?.prefix || brief(asked?.value ?? {}, 160) || shortName(entry.outcome.awaits) }),
        h("span", { class: "muted", text: `${one.step} waits for ${shortName(entry.outcome.awaits)}` }),
      ),
    ),
  );
}

/** @param {import("./session.js").Session} session @param {Request} request */
function banner(session, request) {
  const approval = isApproval(request);
  const value = fieldsOf(request.event?.value);
  const note = approval
    ? brief(value.arguments ?? {}, 140)
    : `for ${shortName(request.response_type)}${request.path ? `, in ${request.path}` : ""}`;
  const answer = button(approval ? "Review" : "Answer", () => openRequest(session, request), { class: "primary" });
  answer.dataset.request = request.id;
  return h(
    "div",
    { class: "banner waiting", role: "status" },
    h("span", { class: "pill", text: approval ? "Approval" : "Waiting" }),
    h("b", { text: question(request) }),
    h("span", { class: "muted banner-note", text: note }),
    value.problem && h("span", { class: "problem banner-note", text: value.problem, title: value.problem }),
    h("span", { class: "spring" }),
    answer,
  );
}

/** @param {Asker} session @param {Request} request */
export function openRequest(session, request) {
  if (isApproval(request)) approvalDialog(session, request);
  else questionDialog(session, request);
}

/** @param {Asker} session @param {Request} request @param {any} fields @param {HTMLDialogElement} box */
async function send(session, request, fields, box) {
  try {
    await session.source.answer(session.id, request.id, fields);
  } catch (error) {
    if (error.status === 404 || error.status === 409) box.close(); // it was answered elsewhere
    throw error;
  }
  box.close();
  notice("Answer sent.");
  session.refresh();
}

/** @param {Asker} session @param {Request} request */
function questionDialog(session, request) {
  const form = eitherForm(request.schema ?? {}, { skip: Object.keys(request.filled ?? {}) });
  const body = h(
    "form",
    { class: "stack" },
    h("p", { class: "question", text: question(request) }),
    Object.keys(fieldsOf(request.event?.value)).length > 1 && valueTree(fieldsOf(request.event.value), { open: 1 }),
    form.element,
    h("div", { class: "actions" }, h("button", { class: "button primary", text: "Send answer" })),
  );
  const box = dialog(shortName(request.response_type), body);
  body.addEventListener("submit", (event) => {
    event.preventDefault();
    const fields = form.read();
    if (fields) void attempt(() => send(session, request, fields, box));
  });
}

/** @param {Asker} session @param {Request} request */
function approvalDialog(session, request) {
  const value = request.event?.value ?? {};
  const given = value.arguments ?? {};
  const edited = jsonField("Arguments", given, {
    rows: Math.min(16, 2 + JSON.stringify(given, null, 2).split("\n").length),
  });
  const reason = h("input", { type: "text", id: "approval-reason", autocomplete: "off" });
  const approve = () => {
    const args = edited.read();
    if (!args) return;
    const changed = JSON.stringify(args) !== JSON.stringify(given);
    void attempt(() => send(session, request, { approved: true, ...(changed ? { arguments: args } : {}) }, box));
  };
  const deny = () => void attempt(() => send(session, request, { approved: false, reason: reason.value }, box));
  const why =
    value.reason === "unknown_outcome"
      ? "It is not known whether this call was carried out before. Approving runs it again."
      : "";
  const body = h(
    "div",
    { class: "stack" },
    h(
      "p",
      { class: "question" },
      value.agent && `${value.agent} wants to call `,
      h("b", { text: value.tool_name ?? "a tool" }),
    ),
    (why || value.problem) && h("p", { class: "hint", text: [why, value.problem].filter(Boolean).join(" ") }),
    edited.element,
    h("div", { class: "field" }, h("label", { for: "approval-reason", text: "Reason, if denied" }), reason),
    h(
      "div",
      { class: "actions" },
      button("Deny", deny, { class: "danger" }),
      button("Approve", approve, { class: "primary" }),
    ),
  );
  const box = dialog("Approval", body);
}
