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
  ["memory", (w) => w.resident_bytes || 0, (w) => mebibytes(w)],
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
// Processes whose threads are shown, by pid.
const unfolded = new Set();
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
    const counted = new Map((last ? last.by_thread : []).map((thread) => [thread.thread, thread.requests]));
    worker.by_thread = worker.by_thread || [];
    for (const thread of worker.by_thread) {
      thread.rate = 1000 * Math.max(0, thread.requests - (counted.get(thread.thread) || (last ? thread.requests : 0))) / passed;
    }
    numbers.rate += worker.rate;
    numbers.cpu += worker.cpu;
    numbers.errors += 1000 * Math.max(0, worker.errors - from.errors) / passed;
  }
  const helpersBefore = new Map((before ? before.helpers : []).map((helper) => [helper.pid, helper]));
  for (const helper of now.helpers) {
    const last = helpersBefore.get(helper.pid);
    const passed = last ? Math.max(1, now.now_ms - before.now_ms) : Math.max(1, helper.age_ms || 0);
    helper.cpu = 100 * Math.max(0, (helper.cpu_ms || 0) - ((last && last.cpu_ms) || 0)) / passed;
  }
  [numbers.p50, numbers.p99] = latencies(now.latency_us);
  history.push(numbers);
  if (history.length > LOOKS) history.shift();
  before = now;
  for (const pid of unfolded) if (!now.workers.some((worker) => worker.pid === pid)) unfolded.delete(pid);
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
  const focused = body.contains(document.activeElement) ? document.activeElement.dataset.pid : null;
  body.replaceChildren(...rows.map(([cells, kind]) => {
    const tr = document.createElement("tr");
    if (kind) tr.className = kind;
    tr.append(...cells);
    return tr;
  }));
  // The rows are new each second; the keyboard stays where it was.
  const again = focused && body.querySelector('[data-pid="' + focused + '"]');
  if (again) again.focus({ preventScroll: true });
}

const mebibytes = (process) => Math.round((process.resident_bytes || 0) / 1048576) + " MiB";

// The first cell of a worker shows and hides its threads.
function fold(worker) {
  const td = document.createElement("td");
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = worker.number;
  button.dataset.pid = worker.pid;
  button.setAttribute("aria-expanded", String(unfolded.has(worker.pid)));
  button.setAttribute("aria-label", "threads of worker " + worker.number);
  button.addEventListener("click", () => {
    if (!unfolded.delete(worker.pid)) unfolded.add(worker.pid);
    draw();
  });
  td.append(button);
  return td;
}

function threadRow(worker, thread) {
  const own = worker.in_flight.find((one) => one.thread === thread.thread);
  const texts = { worker: "thread", pid: String(thread.thread), state: own ? "busy" : "idle", "requests/s": thread.rate.toFixed(1),
    errors: String(thread.errors), up: own ? age(own.milliseconds) : "" };
  return [COLUMNS.map(([name]) => cell(texts[name] || "")), "thread"];
}

function drawGenerations() {
  fill("generations", shown.generations.map((one) => {
    const workers = one.state === "draining" ? String(one.workers) : one.serving + " of " + Math.max(one.wanted, one.serving);
    const formed = one.formed_in_ms === null ? "" : "began to serve after " + seconds(one.formed_in_ms / 1000);
    const left = one.in_flight + (one.in_flight === 1 ? " request left" : " requests left");
    const step = one.state === "draining" ? left : one.step || formed;
    return [[cell(one.number), cell(one.state), cell(age(one.age_ms)), cell(workers), cell(one.helpers), cell(step, "text")], ""];
  }));
  const last = shown.last_reload;
  at("failure").hidden = !(last && last.why);
  at("failure").textContent = last && last.why ? "The last reload has failed: " + last.why : "";
}

function drawHelpers(has) {
  const works = (helper) => (helper.in_flight || []).map((one) => one.work).join(", ");
  const rows = shown.helpers.filter((helper) => has(helper.name) || has(helper.state) || has(helper.pid) || has(works(helper)));
  at("others").hidden = shown.helpers.length === 0;
  fill("helpers", rows.map((helper) => [[cell(helper.name, "name"), cell(helper.pid), cell(helper.state), cell(age(helper.age_ms)),
    cell(helper.cpu.toFixed(0) + " %"), cell(mebibytes(helper)), cell(helper.done === undefined ? "" : helper.done),
    cell(works(helper), "text")], helper.state === "serving" ? "" : "bad"]));
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
  fill("workers", workers.flatMap((w) => [
    [[fold(w), ...COLUMNS.slice(1).map(([, , text]) => cell(text(w)))], w.state === "serving" ? "" : "bad"],
    ...(unfolded.has(w.pid) ? w.by_thread.map((thread) => threadRow(w, thread)) : []),
  ]));
  drawGenerations();
  drawHelpers(has);
  requests.sort((a, b) => b[1].milliseconds - a[1].milliseconds);
  fill("requests", requests.filter(([n, one]) => has(n) || has(one.request) || has(one.phase)).slice(0, 100).map(([n, one]) =>
    [[cell(n), cell((one.milliseconds / 1000).toFixed(1) + " s"), cell(one.phase, "name"), cell(one.request, "text")], ""]));
  fill("errors", shown.recent_errors.filter((one) => has(one.request)).map((one) =>
    [[cell(one.worker), cell(one.status), cell(age(one.ago_ms)), cell(one.request, "text")], ""]));
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
