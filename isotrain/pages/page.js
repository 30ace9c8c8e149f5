"use strict";
// One layer, or one arm, stands out in every panel; controls of the same kind go together.
const byId = (id) => document.getElementById(id);
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

// Maps: points of a cloud at a step, coloured by what is known of each row.
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
  let placed = [], timer = null, picked = -1; // the row that arrow keys have come to
  const here = () => data.clouds[cloud.value];
  const now = () => here().at[Number(step.value)];

  // Values of each row, their kind, and how a value is named.
  function meaning() {
    const group = data.groups[here().group], at = now();
    if (colour.value === "label") return { values: group.label, kind: group.kind, name: "label " };
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
      byId("map-state").textContent = `${title}: no map, the rows have no scatter or are not finite.`;
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
    byId("map-state").textContent = `${title} · ${placed.length} of ${at.n.toLocaleString("en")} measured rows · from the middle to the border ${round(reach)}`;
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
    byId("map-point").textContent = (row < 0 ? ["Point at a row, or go through them with the arrow keys, to see which it is."] : [
      group.token && `token “${group.token[row]}”`, group.index && `example ${group.index[row]}`,
      group.label && `label ${round(group.label[row])}`, group.frequency && `occurs ${group.frequency[row]} times`,
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
  const chosen = Object.keys(data.clouds);
  cloud.replaceChildren(...chosen.map((name) => new Option(name.replace("/", ", "), name)));
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
const source = byId("data");
const maps = source && byId("map") ? viewer(JSON.parse(source.textContent).maps) : null;
