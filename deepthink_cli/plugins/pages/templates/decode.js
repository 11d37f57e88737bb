"use strict";

/* Columns are gzip in base64: JSON, or little-endian numbers. */
const NUMBERS = {u16: Uint16Array, u32: Uint32Array, i32: Int32Array};

async function decoded(element) {
  const text = atob(element.textContent);
  const packed = new Uint8Array(text.length);
  for (let place = 0; place < text.length; place++) packed[place] = text.charCodeAt(place);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const bytes = await new Response(stream).arrayBuffer();
  const kind = element.dataset.type;
  return kind === "json" ? JSON.parse(new TextDecoder().decode(bytes)) : new NUMBERS[kind](bytes);
}

async function readColumns() {
  const columns = {};
  const elements = [...document.querySelectorAll("script[data-column]")];
  await Promise.all(elements.map(async (element) => {
    columns[element.dataset.column] = await decoded(element);
    element.textContent = "";
  }));
  return columns;
}

/* Control characters and changes of writing direction; line breaks and tabs are kept. */
const STEERING = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

function printable(text) {
  return text.replace(STEERING, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/* An element with attributes and children; texts become text nodes, never markup. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null) element.setAttribute(name, value);
  }
  element.append(...children.map((child) => (typeof child === "string" ? printable(child) : child)));
  return element;
}

function colourOf(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
