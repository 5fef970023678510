/* The served page: what the form asks for is sent, followed, and what comes back is shown. Texts become text, never markup. */

const EVERY = 300;
const WHOLE = ["ranks", "microbatches", "stages_per_rank", "seed", "budget"];
const FILES = {
  json: "JSON", csv: "CSV", messages: "CSV with messages", trace: "trace", verdict: "verdict", report: "report",
  svg: "SVG", "svg-dark": "SVG, dark",
};
const NUMBERS = {
  ranks: "ranks", microbatches: "micro-batches", makespan: "makespan", idle: "idle per rank", bubble_ratio: "bubble",
  peak_activations: "peak activations", weight_copies: "weight copies", overlapped: "overlapped",
};

const find = (id) => document.getElementById(id);
const form = find("form");
let current = "";

/** An element with text; never markup. */
function element(tag, text = "", className = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  if (className) made.className = className;
  return made;
}

const items = (texts) => texts.map((text) => element("li", text));

/** A list of equal numbers is shown as one, a share as percent too. */
function short(value, name) {
  if (name === "bubble_ratio") {
    const [part, whole = 1] = String(value).split("/");
    return `${((100 * part) / whole).toFixed(1)}%${whole === 1 ? "" : ` (${value})`}`;
  }
  if (!Array.isArray(value)) return String(value);
  return new Set(value).size === 1 ? `${value[0]}` : value.join(", ");
}

// ---------------------------------------------------------------------------------------------------------- the form

function choose() {
  const source = form.elements.source.value;
  const { family, placement } = form.elements;
  // What a part of the form is for: a source, or what was chosen there.
  const chosen = source === "pasted" ? [source] : [source, `${source}-${(source === "family" ? family : placement).value}`];
  for (const part of document.querySelectorAll("[data-for]")) {
    const meant = part.dataset.for.split(" ").some((word) => chosen.includes(word));
    part.hidden = !meant;
    for (const input of part.querySelectorAll("input, select, textarea")) input.disabled = !meant;
  }
  find("about").textContent = source === "family" ? family.selectedOptions[0].dataset.about : "";
  find("go").textContent = source === "synthesis" ? "search" : "judge";
}

function asked() {
  const data = new FormData(form), written = { messages: data.getAll("messages") };
  for (const [name, value] of data) {
    if (name === "messages" || value === "") continue;
    written[name] = WHOLE.includes(name) ? Number(value) : value;
  }
  return written;
}

async function paste(event) {
  const [file] = event.target.files;
  if (file) form.elements.text.value = await file.text();
}

// ----------------------------------------------------------------------------------------------------------- the job

async function call(path, options = {}) {
  const response = await fetch(path, options);
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

async function start(event) {
  event.preventDefault();
  clear();
  busy(true);
  try {
    const body = JSON.stringify(asked());
    let job = await call("/jobs", { method: "POST", headers: { "content-type": "application/json" }, body });
    current = job.job;
    while (job.state === "running") {
      tell(job);
      await new Promise((resolve) => setTimeout(resolve, EVERY));
      job = await call(`/jobs/${current}`);
    }
    finish(job);
  } catch (error) {
    fail(error.message);
  }
  busy(false);
}

function cancel() {
  if (current) call(`/jobs/${current}`, { method: "DELETE" }).catch((error) => fail(error.message));
}

function busy(now) {
  find("go").disabled = now;
  find("cancel").hidden = !now;
  if (now) current = "";
}

function clear() {
  for (const id of ["error", "result", "marked", "rest"]) find(id).hidden = true;
  find("report").removeAttribute("src");
  find("progress").textContent = find("found").textContent = "";
  for (const id of ["numbers", "witnesses"]) find(id).replaceChildren();
}

function tell(job) {
  const { best, bound, gap } = job.progress;
  const found = best === undefined ? "" : `: best ${best}, bound ${bound}, gap ${gap}`;
  find("progress").textContent = `${job.stopping ? "stopping" : "working"}, ${job.seconds.toFixed(0)} s${found}`;
}

function fail(text) {
  find("error").textContent = text;
  find("error").hidden = false;
}

// -------------------------------------------------------------------------------------------------------- the result

function finish(job) {
  find("progress").textContent = job.state === "cancelled" ? "cancelled" : `${job.state}, ${job.seconds.toFixed(1)} s`;
  if (job.missing) find("progress").textContent += `; without ${job.missing}`;
  if (job.error) fail(job.error);
  if (job.table) mark(job.table);
  if (job.synthesis) searched(job.synthesis);
  if (job.verdict) judged(job);
  if (job.files.length) offered(job);
}

/** What is known of the schedule that was looked for: how good it is, and why. */
function searched(found) {
  const { status, scope } = found, among = scope === "mirrored" ? " among mirror-symmetric schedules" : "";
  const length = found.longest_span === undefined ? `Makespan ${found.makespan}` : `Longest span ${found.longest_span}`;
  const inScope = found.scope_bound ? `, nor below ${found.scope_bound} among mirror-symmetric schedules` : "";
  const why = found.certificate ? ` (${found.certificate.kind}: ${found.certificate.by.join(", ")})` : "";
  find("found").textContent = {
    optimal: `${length}; nothing shorter exists${among}${why}.`,
    feasible: `${length}; nothing below ${found.lower_bound} exists (${found.bound})${inScope}; what lies between is open.`,
  }[status] || `No schedule: ${found.reason}`;
  verdictOn(found.makespan === undefined ? "no schedule" : "", status);
}

function verdictOn(name, status) {
  find("name").textContent = name;
  find("status").textContent = status;
  find("status").className = `status ${status}`;
  find("result").hidden = false;
}

function judged(job) {
  const { verdict } = job, known = Object.entries(NUMBERS).filter(([key]) => verdict[key] !== null);
  // What was found is legal, or would not have been found; what is of interest is how good it is.
  const found = job.synthesis && verdict.status === "proved" ? job.synthesis.status : verdict.status;
  verdictOn(verdict.schedule || "schedule", found);
  find("numbers").replaceChildren(
    ...known.flatMap(([key, name]) => [element("dt", name), element("dd", short(verdict[key], key))]),
  );
  find("witnesses").replaceChildren(...items(witnesses(verdict.properties)));
}

/** What can be downloaded, and the timeline. */
function offered(job) {
  find("files").replaceChildren(...job.files.map((name) => download(job, name)));
  find("refused").replaceChildren(...items(Object.entries(job.refused).map(([name, why]) => `no ${FILES[name]}: ${why}`)));
  find("rest").hidden = false;
  if (job.files.includes("report")) find("report").src = find("open").href = `/jobs/${job.job}/report`;
  find("report").hidden = find("open").hidden = !job.files.includes("report");
}

/** What refutes the properties, and what made them unknown. */
function witnesses(properties) {
  return Object.entries(properties).flatMap(([name, part]) => [
    ...(part.witness || []).map((witness) => `${name}: ${witness.text}`),
    ...(part.status === "unknown" && part.reason ? [`${name}: ${part.reason}`] : []),
    ...witnesses(part.models || {}),
  ]);
}

function download(job, name) {
  const link = element("a", FILES[name]);
  link.href = `/jobs/${job.job}/${name}?download`;
  link.download = "";
  link.id = `file-${name}`;
  return link;
}

/** The cells around what is wrong, with the wrong ones marked. */
function mark(table) {
  const head = element("tr");
  const columns = Math.max(...table.rows.map((row) => row.cells.length));
  head.append(element("th", "rank"), ...Array.from({ length: columns }, (_, index) => element("th", String(table.first + index))));
  const lines = table.rows.map((row) => {
    const line = element("tr");
    line.append(element("th", String(row.rank)));
    for (const [text, why] of row.cells) {
      const cell = element("td", text, why ? "wrong" : "");
      if (why) cell.title = why;
      line.append(cell);
    }
    return line;
  });
  find("cells").replaceChildren(head, ...lines);
  find("cut").textContent = table.all ? "" : "The part around the first of them.";
  find("marked").hidden = false;
  const cell = find("cells").querySelector(".wrong"), window = find("cells").parentElement;
  window.scrollLeft = cell.offsetLeft - (window.clientWidth - cell.offsetWidth) / 2;
}

form.addEventListener("submit", start);
form.addEventListener("change", choose);
find("cancel").addEventListener("click", cancel);
find("file").addEventListener("change", paste);
choose();
