// The page of a running instance: events with counters come once a second, and rates are made here from two of them. Text of
// clients becomes text nodes only. Rows keep their elements as long as their process or request lives, so that a click, a selection
// and the keyboard stay where they are.
"use strict";

const HISTORY_MS = 120000;
// The charts begin with a short time, so that they are not empty for two minutes.
const SPANS_MS = [30000, 60000, HISTORY_MS];
// Between two events that are further apart, the line of a chart is broken.
const GAP_MS = 5000;
const LATENCY_LOOKS = 10;
const BUCKET_RATIO = Math.pow(2, 1 / 8);
const MAX_REQUESTS = 100;
const OLD_MS = 1000;
const NONE = "\u2013";
const CHART_WIDTH = 240;
const CHART_HEIGHT = 100;

// Name, short name for phones, kind, key of the order, text.
const COLUMNS = [
  ["worker", "", "", (w) => w.number, (w) => String(w.number)],
  ["pid", "", "number less", (w) => w.pid, (w) => String(w.pid)],
  ["generation", "", "number less", (w) => w.generation, (w) => String(w.generation)],
  ["state", "", "less", (w) => w.state, (w) => w.state],
  ["up", "", "number less", (w) => w.age_ms, (w) => age(w.age_ms)],
  ["CPU", "", "number", (w) => w.cpu, (w) => percent(w.cpu)],
  ["memory", "", "number", (w) => w.resident_bytes || 0, (w) => memory(w.resident_bytes)],
  ["requests/s", "req/s", "number", (w) => w.rate, (w) => w.rate.toFixed(1)],
  ["requests", "", "number less", (w) => w.requests, (w) => whole(w.requests)],
  ["errors", "", "number less", (w) => w.errors, (w) => whole(w.errors)],
  ["connections", "", "number less", (w) => w.connections, (w) => whole(w.connections)],
  ["busy", "", "number", (w) => w.busy, (w) => share(w.busy, w.most)],
];
// The order of these begins with the smallest.
const ASCENDING = 4;
// Name, value, words beside it (the last ones in the color of the second series), the unit of the scale, and the series, of which
// the first one has an area below it.
const CHARTS = [
  ["Requests", (n) => n.rate.toFixed(1) + "/s", (n) => [whole(n.requests) + " since startup", ""], (v) => short(v) + "/s", [(n) => n.rate]],
  ["Errors", (n) => n.errors.toFixed(1) + "/s", (n) => [whole(n.failed) + " since startup", ""], (v) => short(v) + "/s", [(n) => n.errors]],
  ["Latency p50", (n) => seconds(n.p50), (n) => ["p90 " + seconds(n.p90) + ", ", "p99 " + seconds(n.p99)], seconds, [(n) => n.p50, (n) => n.p99]],
  ["CPU", (n) => percent(n.cpu), (n) => ["of " + n.cpus * 100 + " % (" + counted(n.cpus, "CPU") + ")", ""], percent, [(n) => n.cpu]],
  ["Memory", (n) => memory(n.memory), (n) => ["RSS of " + n.processes + " processes", ""], memory, [(n) => n.memory]],
  ["Busy", (n) => share(n.busy, n.most), (n) => ["queue " + n.waiting + " of " + n.room, ""], short, [(n) => n.busy]],
];

// Processes whose threads are shown, by pid.
const unfolded = new Set();
const history = [];
const histograms = new Map();
let before = null;
let shown = null;
let order = 0;
let isReversed = false;
let isPaused = false;
// A button of the mouse or a finger is down: nothing moves until it is up.
let isHeld = false;

const at = (id) => document.getElementById(id);
const whole = (number) => Math.round(number || 0).toLocaleString("en-US");
const counted = (count, noun) => count + " " + noun + (count === 1 ? "" : "s");

function age(ms) {
  const s = Math.floor((ms || 0) / 1000);
  const both = (large, unit, small, smaller) => large + " " + unit + (small > 0 ? " " + small + " " + smaller : "");
  if (s < 60) return s + " s";
  if (s < 3600) return both(Math.floor(s / 60), "min", s % 60, "s");
  if (s < 172800) return both(Math.floor(s / 3600), "h", Math.floor(s / 60) % 60, "min");
  return both(Math.floor(s / 86400), "d", Math.floor(s / 3600) % 24, "h");
}

function percent(value) {
  return value.toFixed(0) + " %";
}

function seconds(value) {
  if (value === null) return NONE;
  if (value < 0.001) return (value * 1e6).toFixed(0) + " \u00b5s";
  if (value < 0.9995) return digits(value * 1e3) + " ms";
  return digits(value) + " s";
}

// Three digits, without an exponent.
const digits = (value) => (value >= 100 ? value.toFixed(0) : value.toPrecision(3));

function memory(bytes) {
  const mebibytes = (bytes || 0) / 1048576;
  return mebibytes < 10240 ? Math.round(mebibytes) + " MiB" : (mebibytes / 1024).toFixed(1) + " GiB";
}

function short(value) {
  if (value >= 1e6) return value / 1e6 + "M";
  return value >= 1e4 ? value / 1e3 + "k" : String(value);
}

// An asynchronous application works on more requests than its worker has threads.
const share = (number, most) => (most >= number && most > 0 ? number + " of " + most : String(number));

const clock = (ms) => new Date(ms).toLocaleTimeString("en-GB");

function quantile(counts, part) {
  const total = counts.reduce((sum, pair) => sum + pair[1], 0);
  if (total === 0) return null;
  const rank = part * total;
  let upTo = 0;
  for (const [upper, count] of counts) {
    upTo += count;
    // The geometric middle of the bucket is at most 4.5 % from the truth.
    if (count > 0 && upTo >= rank) return upper / Math.sqrt(BUCKET_RATIO) / 1e6;
  }
  return null;
}

// Quantiles over the last looks of the histogram with this name.
function latencies(name, buckets) {
  const looks = histograms.get(name) || [];
  histograms.set(name, looks);
  const old = new Map(looks.length > 0 ? looks[0] : []);
  const counts = looks.length > 0 ? buckets.map(([upper, count]) => [upper, Math.max(0, count - (old.get(upper) || 0))]) : buckets;
  looks.push(buckets);
  if (looks.length > LATENCY_LOOKS) looks.shift();
  return [0.5, 0.9, 0.99].map((part) => quantile(counts, part));
}

function take(now) {
  const passedSince = (last, own) => (last ? Math.max(1, now.now_ms - before.now_ms) : Math.max(1, own.age_ms || 0));
  const numbers = { ms: now.now_ms, rate: 0, errors: 0, cpu: 0, memory: 0, busy: 0, most: 0, processes: 0, waiting: now.queue.waiting,
    room: now.queue.most, requests: now.totals.requests, failed: now.totals.errors, cpus: now.site.cpus };
  const old = new Map((before ? before.workers : []).map((w) => [w.pid, w]));
  for (const worker of now.workers) {
    const last = old.get(worker.pid);
    const passed = passedSince(last, worker);
    const from = last || { requests: 0, cpu_ms: 0, errors: worker.errors };
    worker.rate = 1000 * Math.max(0, worker.requests - from.requests) / passed;
    worker.cpu = 100 * Math.max(0, (worker.cpu_ms || 0) - (from.cpu_ms || 0)) / passed;
    worker.most = worker.greenlets ? worker.greenlets.most : worker.threads;
    worker.busy = Math.max(worker.in_flight.length, worker.ongoing, worker.greenlets ? worker.greenlets.busy : 0);
    const counts = new Map((last ? last.by_thread : []).map((thread) => [thread.thread, thread.requests]));
    worker.by_thread = worker.by_thread || [];
    for (const thread of worker.by_thread) {
      thread.rate = 1000 * Math.max(0, thread.requests - (counts.get(thread.thread) || (last ? thread.requests : 0))) / passed;
    }
    numbers.rate += worker.rate;
    numbers.busy += worker.busy;
    numbers.most += worker.most;
    numbers.errors += 1000 * Math.max(0, worker.errors - from.errors) / passed;
  }
  const helpersBefore = new Map((before ? before.helpers : []).map((helper) => [helper.pid, helper]));
  for (const helper of now.helpers) {
    const last = helpersBefore.get(helper.pid);
    helper.cpu = 100 * Math.max(0, (helper.cpu_ms || 0) - ((last && last.cpu_ms) || 0)) / passedSince(last, helper);
  }
  for (const process of [...now.workers, ...now.helpers]) {
    numbers.cpu += process.cpu;
    numbers.memory += process.resident_bytes || 0;
    numbers.processes += 1;
  }
  [numbers.p50, numbers.p90, numbers.p99] = latencies("", now.latency_us);
  takeRoutes(now);
  history.push(numbers);
  while (history[0].ms < now.now_ms - HISTORY_MS) history.shift();
  before = now;
  for (const pid of unfolded) if (!now.workers.some((worker) => worker.pid === pid)) unfolded.delete(pid);
  if (!isPaused) {
    shown = now;
    draw();
  }
}

// Groups of routes have counters since startup; the routes of the recorder are ready.
function takeRoutes(now) {
  const isCounted = now.routes.source === "route-group";
  const old = new Map((before && isCounted ? before.routes.rows : []).map((route) => [route.name, route]));
  for (const route of now.routes.rows) {
    if (isCounted) {
      const last = old.get(route.name);
      route.rate = last ? 1000 * Math.max(0, route.requests - last.requests) / Math.max(1, now.now_ms - before.now_ms) : 0;
      [route.p50, , route.p99] = latencies("route " + route.name, route.latency_us);
    } else {
      [route.p50, route.p99] = [route.p50_us / 1e6, route.p99_us / 1e6];
    }
  }
}

// Whether a person has selected text in this node.
function isSelected(node) {
  const selection = document.getSelection();
  return selection !== null && !selection.isCollapsed && selection.containsNode(node, true);
}

// Changes the text of an element that has nothing else in it.
function say(element, text) {
  const node = element.firstChild || element.appendChild(document.createTextNode(""));
  if (node.data !== text && !isSelected(node)) node.data = text;
}

// Gives a table these rows: each has a key, its kind, and its cells. A cell is a text, or a function that completes the cell once and
// returns the function that renews it.
function fill(id, kinds, rows) {
  const body = at(id);
  const focused = body.contains(document.activeElement) ? document.activeElement : null;
  const known = new Map([...body.children].map((tr) => [tr.dataset.key, tr]));
  const uses = new Map();
  for (const row of rows) {
    const use = uses.get(row.key) || 0;
    uses.set(row.key, use + 1);
    // Two requests may be alike in everything.
    if (use > 0) row.key += " #" + use;
  }
  const staying = new Set(rows.map((row) => row.key));
  for (const [key, tr] of known) if (!staying.has(key)) tr.remove();
  const isFixed = isSelected(body);
  let place = body.firstElementChild;
  for (const row of rows) {
    let tr = known.get(row.key);
    if (!tr) {
      tr = document.createElement("tr");
      tr.dataset.key = row.key;
      tr.append(...row.cells.map(() => document.createElement("td")));
    }
    if (tr.className !== (row.kind || "")) tr.className = row.kind || "";
    row.cells.forEach((cell, number) => {
      const td = tr.children[number];
      if (typeof cell === "string") {
        say(td, cell);
      } else {
        td.renew = td.renew || cell(td);
        td.renew(row);
      }
      if (!row.spans && td.className !== kinds[number]) td.className = kinds[number];
    });
    if (tr === place) {
      place = place.nextElementSibling;
    } else if (!tr.parentNode || !isFixed) {
      body.insertBefore(tr, place);
    }
  }
  // An element that moves loses the keyboard.
  if (focused && focused.isConnected && document.activeElement !== focused) focused.focus({ preventScroll: true });
  body.closest(".scroll").hidden = rows.length === 0;
  const none = at("no-" + id);
  if (none) none.hidden = rows.length > 0;
}

// The first cell of a worker shows and hides its threads.
function foldCell(td) {
  const button = document.createElement("button");
  button.type = "button";
  td.append(button);
  let pid = 0;
  button.addEventListener("click", () => {
    if (!unfolded.delete(pid)) unfolded.add(pid);
    draw();
  });
  return ({ worker }) => {
    pid = worker.pid;
    say(button, String(worker.number));
    button.setAttribute("aria-expanded", String(unfolded.has(pid)));
    button.setAttribute("aria-label", "threads of worker " + worker.number);
  };
}

// What a phone has no columns for, and the command for the stacks: the page itself reads no process.
function detailCell(td) {
  td.colSpan = COLUMNS.length;
  const facts = document.createElement("span");
  facts.className = "more";
  const command = document.createElement("span");
  command.className = "command";
  const code = document.createElement("code");
  const copy = document.createElement("button");
  copy.type = "button";
  copy.textContent = "Copy";
  copy.addEventListener("click", () => copyOf(code, copy));
  command.append("Stacks: ", code, copy);
  td.append(facts, command);
  return ({ worker }) => {
    say(facts, ["pid " + worker.pid, "generation " + worker.generation, worker.state, "up " + age(worker.age_ms),
      whole(worker.requests) + " requests", whole(worker.errors) + " errors", counted(worker.connections, "connection")].join(", ") + ". ");
    say(code, "bolide trace " + worker.pid + " " + shown.pid);
  };
}

// Only pages from this machine or with HTTPS may write to the clipboard; on others the command is selected.
function copyOf(code, button) {
  const done = () => {
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  };
  const select = () => document.getSelection().selectAllChildren(code);
  if (navigator.clipboard) {
    navigator.clipboard.writeText(code.textContent).then(done, select);
  } else {
    select();
  }
}

function threadRow(worker, thread) {
  const own = worker.in_flight.find((one) => one.thread === thread.thread);
  const texts = { worker: "thread " + thread.thread, state: own ? own.state || "busy" : "idle", "requests/s": thread.rate.toFixed(1),
    requests: whole(thread.requests), errors: whole(thread.errors), busy: own ? age(own.milliseconds) : "" };
  return { key: worker.pid + " " + thread.thread, kind: "thread", cells: COLUMNS.map(([name]) => texts[name] || "") };
}

function workerRows(worker) {
  const row = { key: String(worker.pid), kind: worker.state === "serving" ? "" : "bad", worker,
    cells: [foldCell, ...COLUMNS.slice(1).map(([, , , , text]) => text(worker))] };
  if (!unfolded.has(worker.pid)) return [row];
  const detail = { key: worker.pid + " detail", kind: "detail", worker, cells: [detailCell], spans: true };
  return [row, ...worker.by_thread.map((thread) => threadRow(worker, thread)), detail];
}

function drawHead() {
  const { site, last_reload: last, generations } = shown;
  const application = site.applications.length > 0 ? site.applications.join(", ") : "Bolide";
  const name = application + (site.host ? " on " + site.host : "");
  document.title = (shown.phase === "serving" ? "" : "(" + shown.phase + ") ") + name;
  say(at("title"), name);
  const serving = generations.find((one) => one.state === "serving");
  const parts = [shown.phase, "generation " + (shown.generation === null ? "none" : shown.generation)
    + (serving ? " for " + age(serving.age_ms) : "")];
  if (serving) parts.push(serving.serving + " of " + counted(Math.max(serving.wanted, serving.serving), "worker"));
  if (last) parts.push(counted(shown.reloads, "reload") + ", the last at " + clock(last.at * 1000));
  if (shown.failed_reloads > 0) parts.push(shown.failed_reloads + " failed");
  if (isPaused) parts.push("paused: the figures are those of " + clock(Date.now() - (before.now_ms - shown.now_ms)));
  say(at("state"), parts.join(" \u00b7 "));
  at("state").className = isPaused ? "paused" : "";
  const more = site.more_addresses > 0 ? " and " + site.more_addresses + " more" : "";
  say(at("site"), site.addresses.length > 0 ? site.addresses.join(", ") + more : "no address");
  say(at("version"), "Bolide " + shown.version + ", master " + shown.pid);
  const why = last && last.why;
  at("failure").hidden = !why;
  if (why) say(at("failure"), "The reload at " + clock(last.at * 1000) + " failed, so generation " + shown.generation + " still serves: " + why);
}

// The next number of 1, 2, 5, 10 and so on.
function scaleOf(value) {
  const power = Math.pow(10, Math.floor(Math.log10(value)));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value * 0.999) || value;
}

function lineOf(points) {
  let path = "";
  let last = null;
  for (const [ms, x, y] of points) {
    path += (last === null || ms - last > GAP_MS ? "M" : "L") + x.toFixed(1) + " " + y.toFixed(1);
    last = ms;
  }
  return path;
}

function drawCharts() {
  const now = history[history.length - 1];
  const span = SPANS_MS.find((ms) => ms >= now.ms - history[0].ms) || HISTORY_MS;
  CHARTS.forEach(([name, value, words, unit, series], place) => {
    const card = at("charts").children[place];
    say(card.querySelector("b"), value(now));
    words(now).forEach((text, number) => say(card.querySelector("i").children[number], text));
    const values = series.map((of) => history.map((one) => [one.ms, of(one)]).filter((pair) => pair[1] !== null));
    const peak = Math.max(0, ...values.flat().map((pair) => pair[1]));
    // Threads and memory have their own steps.
    let most = peak > 0 ? scaleOf(peak) : 1;
    if (name === "Busy") most = Math.max(now.most, peak, 1);
    if (name === "CPU") most = Math.max(peak, Math.min(most, now.cpus * 100));
    if (name === "Memory") most = 1048576 * scaleOf(Math.max(1, peak / 1048576));
    say(card.querySelector("h2 span + span"), name.startsWith("Latency") && peak === 0 ? "" : "peak " + unit(name === "Requests" || name === "Errors" ? Math.round(peak * 10) / 10 : peak));
    values.forEach((pairs, number) => {
      const points = pairs.map(([ms, one]) => [ms, CHART_WIDTH * (1 - (now.ms - ms) / span), CHART_HEIGHT * (1 - one / most)]);
      card.querySelector("path.series" + number).setAttribute("d", lineOf(points));
      if (number === 0 && points.length > 0) {
        const [first, last] = [points[0][1].toFixed(1), points[points.length - 1][1].toFixed(1)];
        card.querySelector("path.area").setAttribute("d", lineOf(points.map(([, x, y]) => [0, x, y])) + "L" + last + " " + CHART_HEIGHT + "L" + first + " " + CHART_HEIGHT + "Z");
      }
    });
    const [from, scale] = card.querySelectorAll(".axis span");
    say(from, span < 60000 ? "\u2212" + span / 1000 + " s" : "\u2212" + span / 60000 + " min");
    say(scale, "0 to " + unit(most).replace(/\.0+(?=\D)/, ""));
  });
}

function drawWorkers(has) {
  const [, , , key] = COLUMNS[order];
  const workers = shown.workers.filter((w) => has(w.number) || has(w.state) || has(w.pid) || w.in_flight.some((one) => has(one.request)));
  workers.sort((a, b) => (key(a) > key(b) ? 1 : key(a) < key(b) ? -1 : a.number - b.number || a.pid - b.pid) * (isReversed ? -1 : 1));
  fill("workers", COLUMNS.map(([, , kind]) => kind), workers.flatMap(workerRows));
  const serving = shown.generations.find((one) => one.state === "serving");
  const isCheap = serving && serving.wanted === 0 && shown.workers.length === 0;
  say(at("no-workers"), isCheap ? "None is running (cheap): the first connection starts them." : shown.workers.length > 0 ? "None matches the filter." : "None yet.");
}

function drawGenerations() {
  const isPlain = shown.generations.length === 1 && shown.generations[0].state === "serving";
  at("forming").hidden = isPlain || shown.generations.length === 0;
  fill("generations", ["number", "", "number", "number", "number less", "wide"], shown.generations.map((one) => {
    const workers = one.state === "draining" ? String(one.workers) : one.serving + " of " + Math.max(one.wanted, one.serving);
    const formed = one.formed_in_ms === null ? "" : "ready after " + seconds(one.formed_in_ms / 1000);
    const step = one.state === "draining" ? counted(one.in_flight, "request") + " left" : one.step || formed;
    return { key: String(one.number), cells: [String(one.number), one.state, age(one.age_ms), workers, String(one.helpers), step] };
  }));
}

function drawRoutes(has) {
  const { source, rows, requests, more } = shown.routes;
  const isCounted = source === "route-group";
  say(at("routes-source"), isCounted ? "by route-group" : "estimated from the last " + whole(requests) + " requests"
    + (more > 0 ? ", without " + counted(more, "rare route") : "") + "; route-group counts them");
  fill("routes", ["wide", "number", "number less", "number", "number", "number less"], rows.filter((route) => has(route.name)).map((route) =>
    ({ key: route.name, cells: [route.name, route.rate.toFixed(1), seconds(route.p50), seconds(route.p99),
      whole(route.errors), whole(route.requests)] })));
  say(at("no-routes"), rows.length > 0 ? "None matches the filter." : "No request in the last two minutes.");
}

function drawRequests(has) {
  const requests = shown.workers.flatMap((w) => w.in_flight.map((one) => [w, one]));
  requests.sort((a, b) => b[1].milliseconds - a[1].milliseconds);
  const matching = requests.filter(([w, one]) => has(w.number) || has(one.request) || has(one.phase));
  const rest = matching.length - MAX_REQUESTS;
  say(at("requests-count"), requests.length === 0 ? "" : requests.length + (rest > 0 ? ", the oldest " + MAX_REQUESTS + " of them" : ""));
  fill("requests", ["number", "number", "less", "less", "wide"], matching.slice(0, MAX_REQUESTS).map(([w, one]) =>
    ({ key: w.pid + " " + (shown.now_ms - one.milliseconds) + " " + one.request, kind: one.milliseconds >= OLD_MS ? "old" : "", cells: [String(w.number),
      (one.milliseconds / 1000).toFixed(1) + " s", one.phase, one.state || "", one.request] })));
  say(at("no-requests"), requests.length > 0 ? "None matches the filter." : "None.");
}

function drawErrors(has) {
  const rows = shown.recent_errors.filter((one) => has(one.request));
  const now = Date.now() - (before.now_ms - shown.now_ms);
  fill("errors", ["number", "number less", "number", "number less", "wide"], rows.map((one) => {
    const trace = one.trace ? " (trace " + one.trace + ")" : "";
    return { key: one.worker + " " + (shown.now_ms - one.ago_ms) + " " + one.request, kind: "bad", cells: [String(one.status), String(one.worker),
      clock(now - one.ago_ms), age(one.ago_ms), one.request + trace] };
  }));
  const { errors } = shown.totals;
  say(at("no-errors"), shown.recent_errors.length > 0 ? "None matches the filter." : errors === 0 ? "None since startup."
    : "None among the last requests of each worker. " + counted(errors, "error") + " since startup: the log has their tracebacks.");
}

function drawHelpers(has) {
  const works = (helper) => (helper.in_flight || []).map((one) => one.work).join(", ");
  const rows = shown.helpers.filter((helper) => has(helper.name) || has(helper.state) || has(helper.pid) || has(works(helper)));
  at("others").hidden = shown.helpers.length === 0;
  fill("helpers", ["", "number less", "", "number less", "number", "number", "number less", "wide"], rows.map((helper) =>
    ({ key: String(helper.pid), kind: helper.state === "serving" ? "" : "bad", cells: [helper.name, String(helper.pid), helper.state, age(helper.age_ms),
      percent(helper.cpu), memory(helper.resident_bytes), helper.done === undefined ? "" : whole(helper.done), works(helper)] })));
}

function drawServices(has) {
  const rows = shown.services.filter((service) => has(service.name));
  at("limits").hidden = shown.services.length === 0;
  fill("services", ["", "wide"], rows.map(({ name, counts }) =>
    ({ key: name, cells: [name, counts.map(([count, words]) => whole(count) + " " + words).join(", ")] })));
}

function draw() {
  if (shown === null || isHeld) return;
  const wanted = at("filter").value.toLowerCase();
  const has = (text) => wanted === "" || String(text).toLowerCase().includes(wanted);
  drawHead();
  drawCharts();
  drawGenerations();
  drawWorkers(has);
  drawRoutes(has);
  drawRequests(has);
  drawErrors(has);
  drawServices(has);
  drawHelpers(has);
}

function element(name, kind, ...children) {
  const made = document.createElement(name);
  if (kind) made.className = kind;
  made.append(...children);
  return made;
}

function drawing(name, kind) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  if (kind) made.setAttribute("class", kind);
  return made;
}

function prepareCharts() {
  for (const [name, , , , series] of CHARTS) {
    const svg = drawing("svg");
    svg.setAttribute("viewBox", "0 0 " + CHART_WIDTH + " " + CHART_HEIGHT);
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("aria-hidden", "true");
    for (const y of [0, CHART_HEIGHT / 2]) {
      const grid = drawing("line");
      for (const [key, value] of [["x1", 0], ["x2", CHART_WIDTH], ["y1", y], ["y2", y]]) grid.setAttribute(key, value);
      svg.append(grid);
    }
    svg.append(drawing("path", "area"), ...series.map((_, number) => drawing("path", "series" + number + (number > 0 ? " second" : ""))));
    const axis = element("div", "axis", element("span"), element("span"), element("span", "", "now"));
    at("charts").append(element("div", "chart", element("h2", "", element("span", "", name), element("span")),
      element("b", "", NONE), element("i", "", element("span"), element("span", "second")), svg, axis));
  }
}

function prepareHeads() {
  COLUMNS.forEach(([name, shortName, kind], place) => {
    const th = element("th", kind);
    const button = element("button");
    button.type = "button";
    button.append(...(shortName ? [element("span", "less", name), element("span", "more", shortName)] : [name]));
    button.addEventListener("click", () => {
      isReversed = order === place ? !isReversed : place >= ASCENDING;
      order = place;
      for (const other of at("heads").children) other.removeAttribute("aria-sort");
      th.setAttribute("aria-sort", isReversed ? "descending" : "ascending");
      draw();
    });
    th.append(button);
    at("heads").append(th);
  });
  at("heads").children[0].setAttribute("aria-sort", "ascending");
}

function prepareHolding() {
  const release = () => {
    if (!isHeld) return;
    isHeld = false;
    // The click comes after the button is up.
    setTimeout(draw, 0);
  };
  document.addEventListener("pointerdown", () => { isHeld = true; });
  for (const name of ["pointerup", "pointercancel", "dragend"]) document.addEventListener(name, release);
  // The button was let go outside of the window.
  document.addEventListener("pointermove", (event) => { if (event.buttons === 0) release(); });
  window.addEventListener("blur", release);
}

function prepare() {
  prepareCharts();
  prepareHeads();
  prepareHolding();
  at("filter").addEventListener("input", draw);
  at("pause").addEventListener("click", () => {
    isPaused = !isPaused;
    at("pause").setAttribute("aria-pressed", String(isPaused));
    say(at("pause"), isPaused ? "Resume" : "Pause");
    if (!isPaused) shown = before;
    draw();
  });
  const events = new EventSource("/-/events");
  events.onmessage = (event) => take(JSON.parse(event.data));
  events.onerror = () => {
    say(at("state"), "no connection; trying again");
    at("state").className = "lost";
  };
}

prepare();
