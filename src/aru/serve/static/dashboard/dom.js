// Elements from data. Text becomes text nodes, never markup.

const SVG = document.querySelector("svg").namespaceURI;

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

export const html = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
export const byId = (id) => document.getElementById(id);

/** Replace what a node contains; links and buttons in it keep the focus by their data-key. */
export function replace(node, ...children) {
  const focused = node.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  node.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined));
  if (focused === undefined) return;
  for (const candidate of node.querySelectorAll("[data-key]"))
    if (candidate.dataset.key === focused) candidate.focus({ preventScroll: true });
}
