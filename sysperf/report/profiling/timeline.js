"use strict";
// Draws rows of boxes on one canvas. Only what is in view is looked at: rows are sorted, and boxes narrower than a pixel are drawn once a pixel.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const canvas = document.getElementById("timeline"), hint = document.getElementById("hint"), ink = canvas.getContext("2d");
  const COLORS = ["#3a9d5d", "#d64545", "#d9a400", "#3d7dca", "#8a63c9", "#8d8d8d", "#3a9d5d", "#3d7dca", "#7fa8d8", "#c98a4b", "#7a8fa6", "#a6857a", "#9aa67a", "#c2571a"];
  const LINE = 16, GAP = 8, TICK = 90, LEAST = 100, SHOWS = canvas.getAttribute("aria-label");
  let from = 0, to = data.duration || 1, width = 0, LABEL = 190, boxes = [], marked = null;

  // Nested boxes get a level each.
  let top = 28;
  for (const row of data.rows) {
    const open = [];
    row.level = row.start.map((start, i) => {
      while (open.length && open[open.length - 1] <= start) open.pop();
      open.push(start + row.duration[i]);
      return Math.min(open.length - 1, 11);
    });
    row.levels = row.level.reduce((most, level) => Math.max(most, level + 1), 1);
    // The longest box of all before: where looking for what is in view may begin.
    row.top = top;
    top += row.levels * LINE + GAP;
    let latest = 0;
    row.reach = row.start.map((start, i) => (latest = Math.max(latest, start + row.duration[i])));
  }
  const height = top + 8;

  const time = ns => ns >= 1e9 ? (ns / 1e9).toFixed(3) + " s" : ns >= 1e6 ? (ns / 1e6).toFixed(3) + " ms" : (ns / 1e3).toFixed(2) + " µs";
  const first = (list, value) => { let low = 0, high = list.length; while (low < high) { const middle = (low + high) >> 1; if (list[middle] < value) low = middle + 1; else high = middle; } return low; };

  function draw() {
    const scale = window.devicePixelRatio || 1;
    width = canvas.clientWidth; LABEL = Math.min(190, Math.round(width / 3));
    canvas.width = width * scale; canvas.height = height * scale; canvas.style.height = height + "px";
    ink.setTransform(scale, 0, 0, scale, 0, 0);
    ink.clearRect(0, 0, width, height);
    ink.font = "11px system-ui, sans-serif"; ink.textBaseline = "middle";
    const text = getComputedStyle(document.body).color, per = (width - LABEL) / (to - from);
    boxes = [];
    axis(text, per);
    for (const row of data.rows) {
      ink.fillStyle = text; ink.fillText(short(row.name, LABEL - 12), 4, row.top + LINE / 2);
      const painted = new Float64Array(row.levels).fill(-1);
      for (let i = first(row.reach, from); i < row.start.length && row.start[i] < to; i++) {
        const start = row.start[i], end = start + row.duration[i];
        if (end <= from) continue;
        const level = row.level[i], x = LABEL + Math.max(0, (start - from) * per), right = LABEL + Math.min(width - LABEL, (end - from) * per);
        if (right <= painted[level]) continue;
        const w = Math.max(0.7, right - x), y = row.top + level * LINE;
        painted[level] = x + w < Math.ceil(x) ? Math.ceil(x) : x + w;
        ink.fillStyle = COLORS[row.color[i]]; ink.fillRect(x, y, w, LINE - 2);
        boxes.push([x, y, w, row, i]);
        if (w > 40) { ink.fillStyle = "#fff"; ink.save(); ink.beginPath(); ink.rect(x, y, w, LINE); ink.clip(); ink.fillText(data.names[row.name_of[i]], x + 3, y + LINE / 2 - 1); ink.restore(); }
      }
    }
  }
  // A name that does not fit ends in three dots.
  function short(name, room) {
    if (ink.measureText(name).width <= room) return name;
    let kept = name.length;
    while (kept && ink.measureText(name.slice(0, kept) + "…").width > room) kept--;
    return name.slice(0, kept) + "…";
  }
  // Lines at 1, 2 or 5 times a power of ten, in the unit of the largest time in view.
  function axis(text, per) {
    const least = TICK / per, power = Math.pow(10, Math.floor(Math.log10(least)));
    const step = power * ([1, 2, 5].find(times => times * power >= least) || 10);
    const [unit, name] = to >= 1e9 ? [1e9, "s"] : to >= 1e6 ? [1e6, "ms"] : [1e3, "µs"];
    const label = at => (at / unit).toFixed(Math.max(0, -Math.floor(Math.log10(step / unit) + 1e-9))) + " " + name;
    ink.fillStyle = text;
    for (let tick = Math.ceil(from / step); tick * step < to; tick++) {
      const x = LABEL + (tick * step - from) * per;
      ink.globalAlpha = 0.2; ink.fillRect(x, 18, 1, height);
      ink.globalAlpha = 0.8; ink.fillText(label(tick * step), x + 3, 10);
    }
    if (marked) {
      const left = Math.max(LABEL, LABEL + (marked[0] - from) * per), right = Math.min(width, LABEL + (marked[1] - from) * per);
      ink.globalAlpha = 0.15;
      if (right > left) ink.fillRect(left, 18, Math.max(1, right - left), height);
    }
    ink.globalAlpha = 1;
    canvas.setAttribute("aria-label", SHOWS + ", " + label(from) + " to " + label(to) + " in view, a line each " + label(step));
  }
  let asked = false;
  const later = () => { if (!asked) { asked = true; requestAnimationFrame(() => { asked = false; draw(); }); } };
  const at = x => from + (x - LABEL) / (width - LABEL) * (to - from);
  function zoom(x, factor) {
    const middle = at(Math.max(x, LABEL)), span = Math.min(data.duration, Math.max(LEAST, (to - from) * factor));
    from = Math.max(0, Math.min(data.duration - span, middle - (middle - from) * span / (to - from))); to = from + span; later();
  }
  canvas.addEventListener("wheel", event => { if (!event.ctrlKey && !event.shiftKey) { event.preventDefault(); zoom(event.offsetX, event.deltaY > 0 ? 1.25 : 0.8); } }, { passive: false });
  let held = null;
  canvas.addEventListener("pointerdown", event => { held = [event.offsetX, from, to]; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointerup", () => { held = null; });
  canvas.addEventListener("pointermove", event => {
    if (held) { const by = (held[0] - event.offsetX) / (width - LABEL) * (held[2] - held[1]), span = held[2] - held[1]; from = Math.max(0, Math.min(data.duration - span, held[1] + by)); to = from + span; later(); return; }
    let found = null;
    for (let i = boxes.length - 1; i >= 0 && !found; i--) { const [x, y, w] = boxes[i]; if (event.offsetX >= x && event.offsetX <= x + Math.max(w, 2) && event.offsetY >= y && event.offsetY < y + LINE) found = boxes[i]; }
    hint.hidden = !found;
    if (found) { const [, , , row, i] = found; hint.textContent = data.names[row.name_of[i]] + "\n" + time(row.duration[i]) + " at " + time(row.start[i]); hint.style.left = Math.min(event.pageX + 12, document.body.clientWidth - 340) + "px"; hint.style.top = event.pageY + 16 + "px"; }
  });
  canvas.addEventListener("pointerleave", () => { hint.hidden = true; });
  canvas.addEventListener("keydown", event => {
    const span = to - from, move = { ArrowLeft: -0.2, ArrowRight: 0.2 }[event.key];
    if (move) { from = Math.max(0, Math.min(data.duration - span, from + move * span)); to = from + span; later(); event.preventDefault(); }
    if (event.key === "+" || event.key === "=") zoom(LABEL + (width - LABEL) / 2, 0.5);
    if (event.key === "-") zoom(LABEL + (width - LABEL) / 2, 2);
    if (event.key === "0") { from = 0; to = data.duration; later(); }
  });
  // `#time=12.5-13.1` shows these milliseconds of the window, with as much beside them.
  function show(address) {
    const found = /^#time=([0-9.]+)-([0-9.]+)$/.exec(address);
    if (!found) return;
    const start = 1e6 * Number(found[1]), span = Math.max(LEAST, 1e6 * Number(found[2]) - start);
    if (!(start + span <= 1.001 * data.duration + LEAST)) return;
    marked = [start, start + span];
    from = Math.max(0, start - span); to = Math.min(data.duration, start + 2 * span);
    canvas.scrollIntoView({ block: "center" }); later();
  }
  for (const link of document.querySelectorAll('a[href^="#time="]')) link.addEventListener("click", () => show(link.hash));
  window.addEventListener("hashchange", () => show(location.hash));
  for (const mark of document.querySelectorAll("[data-color]")) mark.style.background = COLORS[Number(mark.dataset.color)];
  window.addEventListener("resize", later);
  show(location.hash);
  const began = performance.now(); draw(); document.body.dataset.drawnMs = (performance.now() - began).toFixed(1);
})();
