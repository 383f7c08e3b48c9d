// The page of a running instance: events with counters come once a second, and rates are made here from two of them. Text of
// clients becomes text nodes only. There is no other file.
"use strict";

const LOOKS = 120;
const LATENCY_LOOKS = 10;
const BUCKET_RATIO = Math.pow(2, 1 / 8);
const COLUMNS = [
  ["worker", (w) => w.number, (w) => String(w.number)],
  ["pid", (w) => w.pid, (w) => String(w.pid)],
  ["generation", (w) => w.generation, (w) => String(w.generation)],
  ["state", (w) => w.state, (w) => w.state],
  ["up", (w) => w.age_ms, (w) => age(w.age_ms)],
  ["CPU", (w) => w.cpu, (w) => w.cpu.toFixed(0) + " %"],
  ["memory", (w) => w.resident_bytes || 0, (w) => Math.round((w.resident_bytes || 0) / 1048576) + " MiB"],
  ["requests/s", (w) => w.rate, (w) => w.rate.toFixed(1)],
  ["errors", (w) => w.errors, (w) => String(w.errors)],
  ["connections", (w) => w.connections, (w) => String(w.connections)],
  ["threads", (w) => w.threads, (w) => String(w.threads)],
];
const CHARTS = [
  ["requests/s", (n) => n.rate, (v) => v.toFixed(1)],
  ["errors/s", (n) => n.errors, (v) => v.toFixed(1)],
  ["p50", (n) => n.p50, seconds],
  ["p99", (n) => n.p99, seconds],
  ["CPU", (n) => n.cpu, (v) => v.toFixed(0) + " %"],
  ["queue", (n) => n.queue, (v) => String(v)],
];
const history = [];
const histograms = [];
let before = null;
let shown = null;
let order = 0;
let isReversed = false;
let isPaused = false;

const at = (id) => document.getElementById(id);

function age(ms) {
  const s = Math.floor((ms || 0) / 1000);
  if (s < 60) return s + " s";
  if (s < 3600) return Math.floor(s / 60) + " min " + (s % 60) + " s";
  if (s < 172800) return Math.floor(s / 3600) + " h " + (Math.floor(s / 60) % 60) + " min";
  return Math.floor(s / 86400) + " d";
}

function seconds(value) {
  if (value === null) return "\u2013";
  if (value < 0.001) return (value * 1e6).toFixed(0) + " \u00b5s";
  if (value < 1) return (value * 1e3).toPrecision(3) + " ms";
  return value.toPrecision(3) + " s";
}

function quantile(counts, share) {
  const total = counts.reduce((sum, pair) => sum + pair[1], 0);
  if (total === 0) return null;
  const rank = share * total;
  let upTo = 0;
  for (const [upper, count] of counts) {
    upTo += count;
    // The geometric middle of the bucket is at most 4.5 % from the truth.
    if (count > 0 && upTo >= rank) return upper / Math.sqrt(BUCKET_RATIO) / 1e6;
  }
  return null;
}

function latencies(buckets) {
  const old = new Map(histograms.length > 0 ? histograms[0] : []);
  const counts = histograms.length > 0 ? buckets.map(([upper, count]) => [upper, Math.max(0, count - (old.get(upper) || 0))]) : buckets;
  histograms.push(buckets);
  if (histograms.length > LATENCY_LOOKS) histograms.shift();
  return [quantile(counts, 0.5), quantile(counts, 0.99)];
}

function take(now) {
  const old = new Map((before ? before.workers : []).map((w) => [w.pid, w]));
  const numbers = { rate: 0, errors: 0, cpu: 0, queue: now.queue.waiting };
  for (const worker of now.workers) {
    const last = old.get(worker.pid);
    const passed = last ? Math.max(1, now.now_ms - before.now_ms) : Math.max(1, worker.age_ms || 0);
    const from = last || { requests: 0, cpu_ms: 0, errors: worker.errors };
    worker.rate = 1000 * Math.max(0, worker.requests - from.requests) / passed;
    worker.cpu = 100 * Math.max(0, (worker.cpu_ms || 0) - (from.cpu_ms || 0)) / passed;
    numbers.rate += worker.rate;
    numbers.cpu += worker.cpu;
    numbers.errors += 1000 * Math.max(0, worker.errors - from.errors) / passed;
  }
  [numbers.p50, numbers.p99] = latencies(now.latency_us);
  history.push(numbers);
  if (history.length > LOOKS) history.shift();
  before = now;
  if (!isPaused) {
    shown = now;
    draw();
  }
}

function cell(text, kind) {
  const td = document.createElement("td");
  td.textContent = text;
  if (kind) td.className = kind;
  return td;
}

function fill(id, rows) {
  const body = at(id);
  body.replaceChildren(...rows.map(([cells, isBad]) => {
    const tr = document.createElement("tr");
    if (isBad) tr.className = "bad";
    tr.append(...cells);
    return tr;
  }));
}

function draw() {
  if (shown === null) return;
  const wanted = at("filter").value.toLowerCase();
  const has = (text) => wanted === "" || String(text).toLowerCase().includes(wanted);
  document.title = "Bolide " + shown.pid;
  at("title").textContent = "Bolide " + shown.version + ", master " + shown.pid;
  at("state").textContent = shown.phase + ", generation " + shown.generation + ", " + shown.reloads + " reloads, "
    + shown.failed_reloads + " failed" + (isPaused ? "; paused" : "");
  at("state").className = "";
  CHARTS.forEach(([, of, text], place) => {
    const card = at("charts").children[place];
    const values = history.map((n) => of(n) || 0);
    const last = history.length > 0 ? of(history[history.length - 1]) : 0;
    card.querySelector("b").textContent = text(last === undefined ? null : last);
    const most = Math.max(...values, 1e-9);
    const points = values.map((value, x) => (LOOKS - values.length + x) + "," + (39 - 37 * value / most).toFixed(2));
    card.querySelector("polyline").setAttribute("points", points.join(" "));
  });
  const [, key] = COLUMNS[order];
  const requests = shown.workers.flatMap((w) => w.in_flight.map((one) => [w.number, one]));
  const workers = shown.workers.filter((w) => has(w.number) || has(w.state) || has(w.pid) || w.in_flight.some((one) => has(one.request)));
  workers.sort((a, b) => (key(a) > key(b) ? 1 : key(a) < key(b) ? -1 : a.number - b.number) * (isReversed ? -1 : 1));
  fill("workers", workers.map((w) => [COLUMNS.map(([, , text]) => cell(text(w))), w.state !== "serving"]));
  requests.sort((a, b) => b[1].milliseconds - a[1].milliseconds);
  fill("requests", requests.filter(([n, one]) => has(n) || has(one.request)).slice(0, 100)
    .map(([n, one]) => [[cell(n), cell((one.milliseconds / 1000).toFixed(1) + " s"), cell(one.request, "text")], false]));
  fill("errors", shown.recent_errors.filter((one) => has(one.request)).map((one) =>
    [[cell(one.worker), cell(one.status), cell(age(one.ago_ms)), cell(one.request, "text")], false]));
}

function prepare() {
  for (const [name] of CHARTS) {
    const card = document.createElement("div");
    card.className = "chart";
    const label = document.createElement("span");
    label.textContent = name;
    const value = document.createElement("b");
    value.textContent = "\u2013";
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("viewBox", "0 0 " + (LOOKS - 1) + " 40");
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("aria-hidden", "true");
    svg.append(document.createElementNS("http://www.w3.org/2000/svg", "polyline"));
    card.append(label, value, svg);
    at("charts").append(card);
  }
  COLUMNS.forEach(([name], place) => {
    const th = document.createElement("th");
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = name;
    button.addEventListener("click", () => {
      isReversed = order === place ? !isReversed : place > 3;
      order = place;
      for (const other of at("heads").children) other.removeAttribute("aria-sort");
      th.setAttribute("aria-sort", isReversed ? "descending" : "ascending");
      draw();
    });
    th.append(button);
    at("heads").append(th);
  });
  at("heads").children[0].setAttribute("aria-sort", "ascending");
  at("filter").addEventListener("input", draw);
  at("pause").addEventListener("click", () => {
    isPaused = !isPaused;
    at("pause").setAttribute("aria-pressed", String(isPaused));
    if (!isPaused) shown = before;
    draw();
  });
  const events = new EventSource("/-/events");
  events.onmessage = (event) => take(JSON.parse(event.data));
  events.onerror = () => {
    at("state").textContent = "no connection; trying again";
    at("state").className = "lost";
  };
}

prepare();
