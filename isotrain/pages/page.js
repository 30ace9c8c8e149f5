"use strict";
const byId = (id) => document.getElementById(id);
// A link to a folded section opens it.
const unfold = (name) => { const part = name && byId(name); if (part && part.tagName === "DETAILS") part.open = true; };
document.addEventListener("click", (event) => {
  const link = event.target.closest('a[href^="#"]');
  if (link) unfold(link.hash.slice(1));
});
unfold(location.hash.slice(1));

// A list that shows one of several parts.
for (const list of document.querySelectorAll("[data-shows]")) {
  const parts = document.querySelectorAll(`[data-part="${list.dataset.shows}"]`);
  const show = () => parts.forEach((part, number) => { part.hidden = number !== list.selectedIndex; });
  list.addEventListener("input", show);
  show();
}

// In print everything is open, and every chart is drawn.
let closed = [];
addEventListener("beforeprint", () => {
  closed = [...document.querySelectorAll("details:not([open])")];
  closed.forEach((part) => { part.open = true; });
  document.querySelectorAll(".chart:empty").forEach(draw);
});
addEventListener("afterprint", () => closed.forEach((part) => { part.open = false; }));

// Charts are drawn when they come into sight, or in print, which does not wait: the library is ready by then.
async function unpacked(id) {
  const packed = Uint8Array.from(atob(byId(id).textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}
let specs = null;
async function unpack() {
  const script = document.createElement("script");
  script.textContent = await unpacked("library");
  document.head.append(script);
  return JSON.parse(await unpacked("charts"));
}
if (byId("charts")) addEventListener("load", () => { specs ??= unpack(); });
async function draw(element) {
  const name = element.dataset.chart, actions = { export: true, source: false, compiled: false, editor: false };
  const all = await (specs ??= unpack());
  await vegaEmbed(element, all[name], { renderer: "svg", actions, downloadFileName: name, logLevel: 1 });
}
const sight = new IntersectionObserver((entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => {
  sight.unobserve(entry.target);
  draw(entry.target);
}), { rootMargin: "400px" });
document.querySelectorAll(".chart").forEach((element) => sight.observe(element));
