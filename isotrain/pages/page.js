"use strict";
const byId = (id) => document.getElementById(id);
// A link to a folded section opens it.
const unfold = (name) => { const part = name && byId(name); if (part && part.tagName === "DETAILS") part.open = true; };
document.addEventListener("click", (event) => {
  const link = event.target.closest('a[href^="#"]');
  if (link) unfold(link.hash.slice(1));
});
unfold(location.hash.slice(1));

// One layer, or one method, stands out in every panel; controls of the same kind go together.
for (const control of document.querySelectorAll("[data-highlights]")) {
  const kind = control.dataset.highlights;
  control.addEventListener("input", () => {
    const chosen = Number(control.value), name = byId(`${kind}-name`);
    if (name) name.textContent = chosen < 0 ? "all" : String(chosen);
    for (const other of document.querySelectorAll(`[data-highlights="${kind}"]`)) other.value = control.value;
    for (const line of document.querySelectorAll(`[data-${kind}]`)) {
      const own = Number(line.dataset[kind]) === chosen;
      line.classList.toggle("chosen", own);
      line.classList.toggle("dim", chosen >= 0 && !own);
    }
  });
  control.value = -1; // a reloaded page keeps old values
}

// A list that shows one of several parts.
for (const list of document.querySelectorAll("[data-shows]")) {
  const parts = document.querySelectorAll(`[data-part="${list.dataset.shows}"]`);
  list.addEventListener("input", () => {
    parts.forEach((part, number) => { part.hidden = number !== list.selectedIndex; });
  });
  list.selectedIndex = 0;
}

// In print everything is open, and maps are those of the step that the page began with.
let closed = [];
addEventListener("beforeprint", () => {
  closed = [...document.querySelectorAll("details:not([open])")];
  closed.forEach((part) => { part.open = true; });
  if (maps) maps.show(maps.shown);
});
addEventListener("afterprint", () => closed.forEach((part) => { part.open = false; }));

// Maps: points of a cloud at a step, coloured by what is known of each embedding.
const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#444444", "#7b4fb5"];
const SCALE = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [200, 210, 40]]; // viridis
const SHAPES = ["circle", "square", "triangle", "diamond"];
const numbers = (text, Type) => {
  const raw = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  return new Type(raw.buffer);
};
const round = (x) => Number(Number(x).toPrecision(3));
const outline = (shape, x, y, r) => ({
  square: [[x - r, y - r], [x + r, y - r], [x + r, y + r], [x - r, y + r]],
  triangle: [[x, y - 1.2 * r], [x + 1.15 * r, y + r], [x - 1.15 * r, y + r]],
  diamond: [[x, y - 1.3 * r], [x + 1.3 * r, y], [x, y + 1.3 * r], [x - 1.3 * r, y]],
})[shape];

function shade(part) {
  const at = Math.min(0.999, Math.max(0, part)) * (SCALE.length - 1);
  const low = SCALE[Math.floor(at)], high = SCALE[Math.floor(at) + 1];
  return `rgb(${low.map((c, i) => Math.round(c + (high[i] - c) * (at % 1))).join(",")})`;
}

function viewer(data) {
  const canvas = byId("map"), pen = canvas.getContext("2d");
  const cloud = byId("cloud"), colour = byId("colour"), step = byId("step"), play = byId("play");
  let placed = [], timer = null, picked = -1; // the embedding that arrow keys have come to
  const here = () => data.clouds[cloud.value];
  const now = () => here().at[Number(step.value)];

  const labelled = (value) => data.classes[value] ?? `label ${round(value)}`;

  // Values of each embedding, their kind, and how a value is named.
  function meaning() {
    const group = data.groups[here().group], at = now();
    if (colour.value === "label")
      return { values: group.label, kind: group.kind, name: "", shown: labelled };
    if (colour.value === "cluster" && at && at.cluster)
      return { values: [...numbers(at.cluster, Uint8Array)], kind: "class", name: "cluster " };
    if (colour.value === "frequency")
      return { values: group.frequency.map((f) => Math.log10(Math.max(1, f))), kind: "score",
        name: "occurs ", shown: (v) => Math.round(10 ** v) + " times" };
    return { values: null };
  }

  function options() {
    const group = data.groups[here().group], old = colour.value;
    const known = [["label", group.label], ["cluster", here().at.some((at) => at && at.cluster)],
      ["frequency", group.frequency], ["nothing", true]].filter((pair) => pair[1]);
    const titles = { label: "label", cluster: "cluster", frequency: "token frequency (log)", nothing: "nothing" };
    colour.replaceChildren(...known.map(([name]) => new Option(titles[name], name)));
    if (known.some(([name]) => name === old)) colour.value = old;
  }

  function draw() {
    const at = now(), ratio = devicePixelRatio || 1, size = canvas.clientWidth || 400;
    canvas.width = canvas.height = size * ratio;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, size, size);
    placed = [];
    const title = data.titles[step.value].replace(/^./, (c) => c.toUpperCase());
    step.setAttribute("aria-valuetext", title);
    if (!at) {
      byId("map-state").textContent = `${title}: no map, the embeddings have no scatter or are not finite.`;
      byId("map-legend").replaceChildren();
      return;
    }
    const xy = numbers(at.xy, Int16Array), { values, kind, name, shown } = meaning();
    const most = Math.max(...here().at.map((other) => (other ? other.scale : 0)));
    const reach = byId("fit").checked ? at.scale : most;
    const finite = (values || []).filter(Number.isFinite);
    const low = finite.reduce((a, b) => Math.min(a, b), Infinity), high = finite.reduce((a, b) => Math.max(a, b), -Infinity);
    const classes = kind === "class" ? [...new Set(finite)].sort((a, b) => a - b) : [];
    const look = (value) => {
      if (!values) return [COLOURS[0], "circle"];
      if (!Number.isFinite(value)) return ["#bbb", "circle"];
      if (kind === "score") return [shade((value - low) / (high - low || 1)), "circle"];
      const i = classes.indexOf(value);
      return [COLOURS[i % COLOURS.length], SHAPES[i % SHAPES.length]];
    };
    pen.globalAlpha = 0.75;
    const half = size / 2, unit = (half - 12) * at.scale / reach / 32767;
    for (let i = 0; i < xy.length / 2; i++) {
      const x = half + xy[2 * i] * unit, y = half - xy[2 * i + 1] * unit;
      const [fill, shape] = look(values && values[i]), r = size < 450 ? 2.5 : 3.2;
      placed.push([x, y]);
      pen.fillStyle = fill;
      pen.beginPath();
      if (shape === "circle") pen.arc(x, y, r, 0, 7);
      else outline(shape, x, y, r).forEach(([a, b], k) => (k ? pen.lineTo(a, b) : pen.moveTo(a, b)));
      pen.fill();
    }
    if (placed[picked]) {
      pen.globalAlpha = 1;
      pen.lineWidth = 2;
      pen.strokeStyle = "#000";
      pen.beginPath();
      pen.arc(...placed[picked], 8, 0, 7);
      pen.stroke();
    }
    byId("map-state").textContent = `${title} · ${placed.length} of ${at.n.toLocaleString("en")} embeddings · from the middle to the border ${round(reach)}`;
    const key = kind === "score"
      ? [0, 0.25, 0.5, 0.75, 1].map((p) => [low + p * (high - low), shade(p), "circle"])
      : classes.map((value) => [value, ...look(value)]);
    byId("map-legend").replaceChildren(...key.map(([value, fill, shape]) => {
      const entry = document.createElement("span"), corners = outline(shape, 6, 6, 4.2);
      entry.innerHTML = `<svg viewBox="0 0 12 12" fill="${fill}">${corners ? `<path d="M${corners.join("L")}z"/>` : '<circle cx="6" cy="6" r="5"/>'}</svg>`;
      entry.append(name + (shown ? shown(value) : round(value)));
      return entry;
    }));
  }

  function tell(row) {
    const group = data.groups[here().group];
    byId("map-point").textContent = (row < 0 ? ["Point at an embedding, or go through them with the arrow keys, to see which it is."] : [
      group.token && `token “${group.token[row]}”`, group.index && `example ${group.index[row]}`,
      group.label && labelled(group.label[row]), group.frequency && `occurs ${group.frequency[row]} times`,
    ]).filter(Boolean).join(" · ");
  }

  function point(event) {
    const box = canvas.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    let best = -1, least = 15 ** 2;
    placed.forEach(([a, b], i) => {
      const far = (a - x) ** 2 + (b - y) ** 2;
      if (far < least) { least = far; best = i; }
    });
    tell(best);
  }

  function walk(event) {
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!by || !placed.length) return;
    event.preventDefault();
    picked = picked < 0 && by < 0 ? placed.length - 1 : (picked + by + placed.length) % placed.length;
    draw();
    tell(picked);
  }

  function stop() {
    clearInterval(timer);
    timer = null;
    play.textContent = "Play";
    play.setAttribute("aria-pressed", "false");
  }
  function show(number) { step.value = number; draw(); }
  const titled = (name) => name.replace("/before", ", layer input").replace("/after", ", output").replace("/", ", ");
  const chosen = Object.keys(data.clouds);
  cloud.replaceChildren(...chosen.map((name) => new Option(titled(name), name)));
  cloud.value = data.start;
  step.max = data.steps.length - 1;
  options();
  cloud.addEventListener("change", () => { options(); picked = -1; draw(); tell(picked); });
  colour.addEventListener("change", draw);
  byId("fit").addEventListener("change", draw);
  step.addEventListener("input", () => { stop(); draw(); });
  play.addEventListener("click", () => {
    if (timer) return stop();
    play.textContent = "Stop";
    play.setAttribute("aria-pressed", "true");
    if (Number(step.value) === data.steps.length - 1) show(0);
    timer = setInterval(() => {
      show(Number(step.value) + 1);
      if (Number(step.value) === data.steps.length - 1) stop();
    }, 700);
  });
  canvas.addEventListener("pointermove", point);
  canvas.addEventListener("pointerdown", point);
  canvas.addEventListener("keydown", walk);
  addEventListener("resize", draw);
  show(data.shown);
  tell(picked);
  return { shown: data.shown, show };
}

// Isotropy of one metric: layers × steps as colours, and the input and output of isotropy layers.
const WIDE = 350, HIGH = 260, LEFT = 46, RIGHT = 292, TOP = 26, BOTTOM = 222;
const minus = (text) => String(text).replace("-", "−");
function svg(name, attributes, text = "") {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.textContent = text;
  return node;
}
function drawing(title) {
  const found = svg("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": title, "font-size": 11 });
  found.append(svg("text", { x: LEFT, y: 14, "font-size": 12.5 }, title));
  found.append(svg("text", { x: (LEFT + RIGHT) / 2, y: HIGH - 6, "text-anchor": "middle" }, "optimizer step"));
  return found;
}
// At most n of some places, evenly, the first and the last among them.
const few = (n, most) => [...new Set(Array.from({ length: Math.min(n, most) },
  (_, k) => Math.round((k * (n - 1)) / Math.max(1, Math.min(n, most) - 1))))];
const ends = (values) => values.flat(2).filter((v) => v !== null && v !== undefined)
  .reduce(([low, high], v) => [Math.min(low, v), Math.max(high, v)], [Infinity, -Infinity]);

function heatMap(one, at) {
  const found = drawing(`${at.title} by layer${at.n ? ` · ${at.n}` : ""}`), [low, high] = ends(at.values);
  const width = (RIGHT - LEFT) / one.steps.length, height = (BOTTOM - TOP) / at.layers.length;
  at.values.forEach((line, k) => line.forEach((value, i) => {
    const x = LEFT + i * width, y = BOTTOM - (k + 1) * height, what = `layer ${at.layers[k]}, step ${one.steps[i]}`;
    const cell = svg("rect", { x, y, width: width + 0.3, height: height + 0.3, fill: value === null ? "#fff" : shade((value - low) / (high - low || 1)) });
    cell.append(svg("title", {}, `${what}: ${value === null ? "no value" : minus(value)}`));
    found.append(cell);
    if (value === null) found.append(svg("text", { x: x + width / 2, y: y + height / 2 + 4, "text-anchor": "middle" }, "×"));
  }));
  for (const k of few(at.layers.length, 13))
    found.append(svg("text", { x: LEFT - 6, y: BOTTOM - (k + 0.5) * height + 4, "text-anchor": "end" }, at.layers[k]));
  for (const i of few(one.steps.length, 5))
    found.append(svg("text", { x: LEFT + (i + 0.5) * width, y: BOTTOM + 15, "text-anchor": "middle" }, one.steps[i]));
  found.append(svg("text", { x: 12, y: (TOP + BOTTOM) / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${(TOP + BOTTOM) / 2})` }, "layer"));
  if (low > high) return found;
  for (let k = 0; k < 40; k++)
    found.append(svg("rect", { x: RIGHT + 8, y: BOTTOM - ((k + 1) * (BOTTOM - TOP)) / 40, width: 10, height: (BOTTOM - TOP) / 40 + 0.3, fill: shade(k / 39) }));
  for (const part of low < high ? [0, 0.5, 1] : [0])
    found.append(svg("text", { x: RIGHT + 21, y: BOTTOM + 4 - part * (BOTTOM - TOP - 6) }, minus(round(low + part * (high - low)))));
  return found;
}

function siteLines(one) {
  const found = drawing(one.sites.some((site) => site.before) ? "layer input and output" : "what the head reads");
  let [low, high] = ends(one.sites.map((site) => ["before", "after", "low", "high"].map((side) => site[side] || [])));
  if (low > high) return found;
  if (high - low < 1e-3 * Math.abs(high)) [low, high] = [low - 0.5e-3 * Math.abs(high), high + 0.5e-3 * Math.abs(high)];
  let from = LEFT, top = TOP + 6; // of the legend
  one.sites.forEach((site, k) => {
    for (const [side, dash, name] of [["before", "6 4", ", input"], ["after", "", site.before ? ", output" : ""]]) {
      if (!site[side]) continue;
      const text = site.name + name, width = 40 + 6 * text.length;
      if (from > LEFT && from + width > WIDE) [from, top] = [LEFT, top + 14];
      found.append(svg("path", { d: `M${from} ${top}h22`, stroke: COLOURS[k % COLOURS.length], "stroke-width": 2, "stroke-dasharray": dash }));
      found.append(svg("text", { x: from + 26, y: top + 4 }, text));
      from += width;
    }
  });
  const [first, last] = [one.steps[0], one.steps.at(-1)], wide = WIDE - 12;
  const x = (step) => LEFT + ((step - first) / (last - first || 1)) * (wide - LEFT);
  const y = (value) => BOTTOM - 6 - ((value - low) / (high - low || 1)) * (BOTTOM - top - 20);
  const path = (values) => values.map((v, i) => (v === null ? "" : `${i && values[i - 1] !== null ? "L" : "M"}${x(one.steps[i]).toFixed(1)} ${y(v).toFixed(1)}`)).join("");
  for (const part of [0, 0.5, 1]) {
    const value = low + part * (high - low);
    found.append(svg("path", { d: `M${LEFT} ${y(value)}H${wide}`, stroke: "#d0d7de" }));
    found.append(svg("text", { x: LEFT - 5, y: y(value) + 4, "text-anchor": "end" }, minus(round(value))));
  }
  few(one.steps.length, 5).map((i) => one.steps[i]).forEach((step, k, all) => {
    if (step === last || x(all[k + 1]) - x(step) > 26)
      found.append(svg("text", { x: x(step), y: BOTTOM + 15, "text-anchor": "middle" }, step));
  });
  one.sites.forEach((site, k) => {
    const stroke = COLOURS[k % COLOURS.length];
    if (site.low && site.high && [...site.low, ...site.high].every((v) => v !== null)) {
      const back = site.low.map((v, i) => `L${x(one.steps[i])} ${y(v)}`).reverse().join("");
      found.append(svg("path", { d: `${path(site.high)}${back}z`, fill: stroke, opacity: 0.15 }));
    }
    for (const [side, dash] of [["before", "6 4"], ["after", ""]]) {
      if (!site[side]) continue;
      found.append(svg("path", { d: path(site[side]), fill: "none", stroke, "stroke-width": 2, "stroke-dasharray": dash }));
      site[side].forEach((v, i) => v !== null && found.append(svg("circle", { cx: x(one.steps[i]), cy: y(v), r: 2.5, fill: stroke })));
    }
  });
  return found;
}

function isotropy(all) {
  const metric = byId("metric"), view = byId("view");
  metric.replaceChildren(...all.map((one, number) => new Option(one.title, number)));
  const draw = () => {
    const one = all[metric.value], at = one.views.find((found) => found.title === view.value);
    byId("heat").replaceChildren(...(at ? [heatMap(one, at)] : []));
    byId("sites").replaceChildren(...(one.sites.length ? [siteLines(one)] : []));
    byId("reading").textContent = one.reading;
  };
  const choose = () => {
    const old = view.value, views = all[metric.value].views.map((found) => found.title);
    view.replaceChildren(...views.map((title) => new Option(title, title)));
    if (views.includes(old)) view.value = old;
    draw();
  };
  metric.addEventListener("input", choose);
  view.addEventListener("input", draw);
  metric.value = 0; // a reloaded page keeps old values
  choose();
}
const source = byId("data"), data = source ? JSON.parse(source.textContent) : {};
if (data.isotropy) isotropy(data.isotropy);
const maps = data.maps ? viewer(data.maps) : null;
