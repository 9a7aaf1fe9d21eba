// Forms built from a JSON Schema: a field for each property, checked before anything is sent, or the whole as JSON.

import { h } from "./dom.js";

/**
 * @typedef {Record<string, any>} Schema
 * @typedef {{element: HTMLElement, read: () => {value?: any, problem?: string}}} Field
 */

let fields = 0;

/** Follows references and the choice between something and nothing. @param {Schema} schema @param {Schema} root */
function resolved(schema, root) {
  let found = schema ?? {};
  for (let turns = 0; turns < 8; turns++) {
    if (found.$ref?.startsWith("#/")) {
      const target =
        found.$ref
          .slice(2)
          .split("/")
          .reduce((inside, name) => inside?.[name], root) ?? {};
      found = { ...target, ...found, $ref: undefined };
    } else if (found.allOf?.length === 1) {
      found = { ...found.allOf[0], ...found, allOf: undefined };
    } else {
      const some = (found.anyOf ?? []).filter((one) => one.type !== "null");
      if (some.length !== 1 || found.type) break;
      found = { ...some[0], ...found, anyOf: undefined, nullable: found.anyOf.length > 1 };
    }
  }
  return found;
}

/** @param {Schema} schema */
function kindOf(schema) {
  if (schema.enum || schema.const !== undefined) return "choice";
  if (schema.type === "boolean") return "boolean";
  if (schema.type === "integer" || schema.type === "number") return "number";
  if (schema.type === "string") return schema.format === "date" ? "date" : "string";
  return "json";
}

/**
 * A form's fields for an object's schema.
 * @param {Schema} schema @param {{values?: Record<string, any>, skip?: string[]}} [options] initial values
 *   already; names that are not asked for
 * @returns {{element: HTMLElement, read: () => Record<string, any> | null, draft: () => Record<string, any>,
 *   names: string[]}} `read` returns null and shows the problem if the input does not fit
 */
export function schemaForm(schema, { values = {}, skip = [] } = {}) {
  const root = resolved(schema, schema);
  const required = new Set(root.required ?? []);
  /** @type {Map<string, {field: Field, show: (problem: string) => void, needed: boolean}>} */ const parts = new Map();
  const element = h("div", { class: "fields" });
  for (const [name, described] of Object.entries(root.properties ?? {})) {
    if (skip.includes(name)) continue;
    const known = resolved(described, schema);
    const initial = name in values ? values[name] : known.default;
    const { line, field, show } = labelled(name, known, initial, required.has(name));
    parts.set(name, { field, show, needed: required.has(name) });
    element.append(line);
  }
  const read = () => collected(parts);
  return { element, read, draft: () => drafted(parts), names: [...parts.keys()] };
}

/** The present input, valid or not. @param {Map<string, {field: Field}>} parts */
function drafted(parts) {
  const written = [...parts].map(([name, { field }]) => [name, field.read().value]);
  return Object.fromEntries(written.filter(([, value]) => value !== undefined));
}

/** @param {Map<string, {field: Field, show: (problem: string) => void, needed: boolean}>} parts */
function collected(parts) {
  /** @type {Record<string, any>} */ const result = {};
  let fits = true;
  for (const [name, { field, show, needed }] of parts) {
    const { value, problem } = field.read();
    const missing = value === undefined && needed ? "This is needed." : "";
    show(problem ?? missing);
    if (problem || missing) {
      if (fits) field.element.focus();
      fits = false;
    } else if (value !== undefined) result[name] = value;
  }
  return fits ? result : null;
}

/** @param {string} name @param {Schema} schema @param {any} initial @param {boolean} needed */
function labelled(name, schema, initial, needed) {
  const id = `field-${++fields}`;
  const field = MAKERS[kindOf(schema)](schema, initial, id);
  field.element.setAttribute("aria-describedby", `${id}-hint`);
  field.element.dataset.name = name;
  const problem = h("span", { class: "problem", role: "alert" });
  const hint = h(
    "span",
    { class: "hint", id: `${id}-hint` },
    schema.description ? String(schema.description) : "",
    problem,
  );
  const show = (text) => {
    problem.textContent = text;
    if (text) field.element.setAttribute("aria-invalid", "true");
    else field.element.removeAttribute("aria-invalid");
  };
  const title = h("label", { for: id }, name, needed && h("span", { class: "needed", text: "needed" }));
  const line = h("div", { class: `field ${kindOf(schema)}` }, title, field.element, hint);
  return { line, field, show };
}

/** @type {Record<string, (schema: Schema, initial: any, id: string) => Field>} */
const MAKERS = { choice, boolean, number: numeric, date: written, string: written, json };

function choice(schema, initial, id) {
  const options = schema.enum ?? [schema.const];
  const element = h(
    "select",
    { id },
    (initial === undefined || schema.nullable) && h("option", { value: "", text: "–" }),
    options.map((option, index) =>
      h("option", { value: String(index), text: String(option), selected: option === initial }),
    ),
  );
  return { element, read: () => ({ value: element.value === "" ? undefined : options[Number(element.value)] }) };
}

function boolean(schema, initial, id) {
  const element = h("input", { type: "checkbox", id, checked: initial === true });
  return { element, read: () => ({ value: element.checked }) };
}

function numeric(schema, initial, id) {
  const whole = schema.type === "integer";
  const element = h("input", {
    type: "text",
    inputmode: whole ? "numeric" : "decimal",
    id,
    autocomplete: "off",
    value: initial === undefined || initial === null ? "" : String(initial),
  });
  const read = () => {
    const text = element.value.trim();
    if (!text) return { value: undefined };
    const value = Number(text);
    if (!Number.isFinite(value)) return { problem: "This is not a number." };
    if (whole && !Number.isInteger(value)) return { problem: "This is not a whole number." };
    return bounded(value, schema);
  };
  return { element, read };
}

/** @param {number} value @param {Schema} schema */
function bounded(value, schema) {
  const { minimum, maximum, exclusiveMinimum, exclusiveMaximum } = schema;
  if (minimum !== undefined && value < minimum) return { problem: `At least ${minimum}.` };
  if (maximum !== undefined && value > maximum) return { problem: `At most ${maximum}.` };
  if (exclusiveMinimum !== undefined && value <= exclusiveMinimum) return { problem: `More than ${exclusiveMinimum}.` };
  if (exclusiveMaximum !== undefined && value >= exclusiveMaximum) return { problem: `Less than ${exclusiveMaximum}.` };
  return { value };
}

function written(schema, initial, id) {
  const text = initial === undefined || initial === null ? "" : String(initial);
  const day = schema.format === "date";
  const element = day
    ? h("input", { type: "date", id, value: text })
    : h("textarea", {
        id,
        value: text,
        rows: Math.min(8, text.split("\n").length + Math.floor(text.length / 60)),
        spellcheck: "false",
      });
  const read = () => {
    const value = element.value;
    if (!value && (initial === undefined || initial === null)) return { value: undefined };
    if (schema.minLength && value.length < schema.minLength)
      return { problem: `At least ${schema.minLength} characters.` };
    if (schema.maxLength && value.length > schema.maxLength)
      return { problem: `At most ${schema.maxLength} characters.` };
    return { value };
  };
  return { element, read };
}

function json(schema, initial, id) {
  const element = h("textarea", {
    id,
    class: "code",
    rows: 4,
    spellcheck: "false",
    value: initial === undefined ? "" : JSON.stringify(initial, null, 2),
  });
  const read = () => {
    if (!element.value.trim()) return { value: undefined };
    const { value, problem } = parsed(element.value);
    if (problem) return { problem };
    if (schema.type === "array" && !Array.isArray(value)) return { problem: "Enter a list in brackets: [ … ]" };
    if (schema.type === "object" && (typeof value !== "object" || Array.isArray(value))) {
      return { problem: "An object in braces is expected: { … }" };
    }
    return { value };
  };
  return { element, read };
}

/** @param {string} text @returns {{value?: any, problem?: string}} */
function parsed(text) {
  try {
    return { value: JSON.parse(text) };
  } catch (error) {
    return { problem: `This is not JSON: ${error.message}` };
  }
}

/**
 * A text field for an object as JSON.
 * @param {string} label @param {any} value @returns {{element: HTMLElement, read: () => Record<string, any> | null}}
 */
export function jsonField(label, value, { rows = 12 } = {}) {
  const id = `field-${++fields}`;
  const problem = h("span", { class: "problem", role: "alert" });
  const area = h("textarea", { id, class: "code", rows, spellcheck: "false", value: JSON.stringify(value, null, 2) });
  const element = h(
    "div",
    { class: "field json" },
    h("label", { for: id, text: label }),
    area,
    h("span", { class: "hint" }, problem),
  );
  const read = () => {
    const found = parsed(area.value || "{}");
    const wrong = found.value === null || typeof found.value !== "object" || Array.isArray(found.value);
    problem.textContent = found.problem ?? (wrong ? "An object in braces is expected: { … }" : "");
    return problem.textContent ? null : found.value;
  };
  return { element, read };
}

/**
 * Fields or JSON; the input is kept when the form changes.
 * @param {Schema} schema @param {{values?: Record<string, any>, skip?: string[]}} [options]
 */
export function eitherForm(schema, options = {}) {
  const place = h("div", {});
  let form = schemaForm(schema, options);
  let raw = null;
  const toggle = h("button", { type: "button", class: "button quiet", text: "As JSON" });
  toggle.addEventListener("click", () => {
    const held = raw ? raw.read() : form.draft();
    if (!held) return;
    raw = raw ? null : jsonField("Fields as JSON", held);
    if (!raw) form = schemaForm(schema, { ...options, values: held });
    toggle.textContent = raw ? "As a form" : "As JSON";
    place.replaceChildren((raw ?? form).element);
  });
  // Without declared properties, the form offers only JSON.
  if (form.names.length) place.append(form.element);
  else {
    raw = jsonField("Fields as JSON", options.values ?? {}, { rows: 6 });
    place.append(raw.element);
    toggle.hidden = true;
  }
  return { element: h("div", { class: "either" }, place, toggle), read: () => (raw ?? form).read() };
}
