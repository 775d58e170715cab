// Shows an element's data-tip beside the pointer, with a hair line at its data-x. The report reads well without it.
const tip = document.getElementById("tip");
let cursor = null;

function clear() {
  tip.hidden = true;
  cursor?.remove();
  cursor = null;
}

function show(event) {
  const target = event.target.closest?.("[data-tip]");
  clear();
  if (!target) return;
  tip.textContent = target.dataset.tip;
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 4))}px`;
  tip.style.top = `${event.clientY > box.height + 24 ? event.clientY - box.height - 14 : event.clientY + 18}px`;
  if (target.dataset.x) {
    const svg = target.ownerSVGElement;
    cursor = document.createElementNS(svg.namespaceURI, "line");
    cursor.setAttribute("class", "cursor");
    for (const end of ["x1", "x2"]) cursor.setAttribute(end, target.dataset.x);
    cursor.setAttribute("y1", svg.dataset.top);
    cursor.setAttribute("y2", svg.dataset.bottom);
    svg.append(cursor);
  }
}

document.addEventListener("pointermove", show);
document.addEventListener("pointerdown", show);
document.addEventListener("scroll", clear, { passive: true });
