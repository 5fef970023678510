/* The page around the timelines: tools, hints, what is selected, tables, and why there are bubbles. */

const MANY = 60;

/** An element with text; never markup. */
function element(tag, text = "", className = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  if (className) made.className = className;
  return made;
}

const find = (id) => document.getElementById(id);

class Page {
  constructor(data) {
    this.data = data;
    this.plans = data.schedules.map((raw) => new Plan(raw));
    this.full = Math.max(...this.plans.map((plan) => plan.makespan / plan.scale)) || 1;
    const page = this;
    this.state = {
      begin: 0, end: this.full, right: Math.max(...this.plans.map(roomBeside)), critical: true, messages: false, memory: false, stages: false, chosen: null,
      colours: () => data.themes[page.theme],
      paint: (part, plan) => page.paint(part, plan),
    };
    this.timelines = this.plans.map((plan) => this.panel(plan));
    this.plans.forEach((plan) => this.details(plan));
    if (this.plans.length > 1) this.comparison();
    this.tools();
    this.legend();
    this.redraw();
  }

  // ------------------------------------------------------------------------------------------------------- colours

  get theme() {
    const wanted = document.documentElement.dataset.theme;
    return wanted || (window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  }

  /** What a part is filled with, and its text. */
  paint(part, plan) {
    if (!this.state.stages) return [this.data.palette[part.kind][part.tone], part.tone ? "#ffffff" : "#000000"];
    const place = plan.stages > 1 ? part.stage / (plan.stages - 1) : 0;
    const ramp = this.data.ramp, at = place * (ramp.length - 1), low = Math.min(Math.floor(at), ramp.length - 2);
    const mixed = ramp[low].map((value, index) => Math.round(value + (ramp[low + 1][index] - value) * (at - low)));
    const bright = 0.299 * mixed[0] + 0.587 * mixed[1] + 0.114 * mixed[2];
    return [`rgb(${mixed.join(" ")})`, bright > 130 ? "#000000" : "#ffffff"];
  }

  /** What the drawing means, of that which occurs in it. */
  legend() {
    const items = [], some = (holds) => this.plans.some(holds);
    const add = (fill, text, className = "") => {
      const item = element("span"), swatch = element("i", "", `swatch ${className}`);
      if (fill) swatch.style.background = fill;
      item.append(swatch, text);
      items.push(item);
    };
    if (this.state.stages) {
      add(`linear-gradient(to right, ${this.data.ramp.map((mixed) => `rgb(${mixed.join(" ")})`).join(", ")})`, "first to last stage");
    } else {
      const shaded = some((plan) => plan.shades > 1);
      for (const [kind, meaning] of Object.entries(this.data.meaning)) {
        if (!some((plan) => plan.code.some((code) => KINDS[code & 3] === kind))) continue;
        const [light, dark] = this.data.palette[kind];
        add(shaded ? `linear-gradient(to right, ${light} 50%, ${dark} 50%)` : light, `${kind} ${meaning}`);
      }
      const tones = [
        ...(some((plan) => plan.directions > 1) ? ["direction 1"] : []),
        ...(some((plan) => plan.directions === 1 && plan.stages > plan.ranks) ? ["second stage of a rank"] : []),
      ];
      if (tones.length) items.push(element("span", `dark: ${tones.join(", or ")}`));
      const [first, second] = [this.data.palette.F[0], this.data.palette.B[shaded ? 1 : 0]];
      if (some((plan) => plan.pairs.length)) add(`linear-gradient(to right, ${first} 50%, ${second} 50%)`, "overlapped", "pair");
    }
    if (some((plan) => plan.gaps.some((row) => row.length))) add("", "idle", "idle");
    if (this.state.critical && some((plan) => plan.critical.length)) add("", "critical path", "critical");
    if (this.state.memory) add("var(--memory)", "live activations");
    find("legend").replaceChildren(...items);
  }

  // ------------------------------------------------------------------------------------------------------- drawing

  /** Draw everything before the next picture of the screen, once however often it is asked for. */
  redraw() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      this.timelines.forEach((timeline) => timeline.draw());
    });
  }

  /** Show a stretch of time, kept near what there is. */
  show(begin, end) {
    const least = this.full / 20000, length = Math.min(Math.max(end - begin, least), this.full);
    const start = Math.min(Math.max(begin, 0), this.full - length);
    Object.assign(this.state, { begin: start, end: start + length });
    this.redraw();
  }

  zoom(factor, at = (this.state.begin + this.state.end) / 2) {
    this.show(at - (at - this.state.begin) * factor, at + (this.state.end - at) * factor);
  }

  move(share) {
    const by = share * (this.state.end - this.state.begin);
    this.show(this.state.begin + by, this.state.end + by);
  }

  // -------------------------------------------------------------------------------------------------------- panels

  panel(plan) {
    const section = element("section"), numbers = element("p", "", "numbers");
    if (this.data.schedules.length > 1) section.append(element("h2", plan.name));
    numbers.append(element("span", plan.status, `status ${plan.status}`), ` ${plan.numbers}`);
    section.append(numbers);
    plan.problems.forEach((text) => section.append(element("p", text, "refuted")));
    const canvas = element("canvas");
    canvas.tabIndex = 0;
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `Timeline of ${plan.name}: ${plan.numbers}. The tables below say the same in words.`);
    section.append(canvas);
    find("panels").append(section);
    const timeline = new Timeline(plan, this.state, canvas);
    this.listen(timeline);
    return timeline;
  }

  listen(timeline) {
    const { canvas } = timeline;
    let grip = null;
    canvas.addEventListener("pointerdown", (event) => {
      grip = { x: event.clientX, begin: this.state.begin, end: this.state.end, moved: false };
    });
    window.addEventListener("pointermove", (event) => {
      if (!grip) return;
      const by = event.clientX - grip.x;
      if (!grip.moved && Math.abs(by) < 4) return;
      grip.moved = true;
      canvas.classList.add("moving");
      this.hint(null);
      const units = (by / timeline.wide) * (grip.end - grip.begin);
      this.show(grip.begin - units, grip.end - units);
    });
    window.addEventListener("pointerup", (event) => {
      if (!grip) return;
      if (!grip.moved) this.choose(timeline.plan, timeline.at(event.offsetX, event.offsetY));
      grip = null;
      canvas.classList.remove("moving");
    });
    window.addEventListener("pointercancel", () => { grip = null; });
    canvas.addEventListener("pointermove", (event) => {
      if (!grip || !grip.moved) this.hint(timeline.plan, timeline.at(event.offsetX, event.offsetY), event);
    });
    canvas.addEventListener("pointerleave", () => this.hint(null));
    canvas.addEventListener("wheel", (event) => {
      const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
      if (event.ctrlKey || event.metaKey) this.zoom(1.0015 ** event.deltaY, timeline.unit(event.offsetX));
      else if (sideways) this.move(sideways / timeline.wide);
      else return;
      event.preventDefault();
    }, { passive: false });
    canvas.addEventListener("dblclick", (event) => this.zoom(0.5, timeline.unit(event.offsetX)));
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    const steps = {
      ArrowLeft: () => this.move(-0.2), ArrowRight: () => this.move(0.2), "+": () => this.zoom(0.6), "=": () => this.zoom(0.6),
      "-": () => this.zoom(1 / 0.6), 0: () => this.show(0, this.full), Escape: () => this.choose(null, {}),
    };
    if (event.ctrlKey || event.metaKey || event.altKey || !steps[event.key]) return;
    steps[event.key]();
    event.preventDefault();
  }

  tools() {
    for (const id of ["critical", "messages", "memory", "stages"]) {
      find(id).addEventListener("change", (event) => {
        this.state[id] = event.target.checked;
        this.legend();
        this.redraw();
      });
    }
    find("nearer").addEventListener("click", () => this.zoom(0.6));
    find("farther").addEventListener("click", () => this.zoom(1 / 0.6));
    find("all").addEventListener("click", () => this.show(0, this.full));
    const name = () => { find("theme").textContent = this.theme === "dark" ? "light" : "dark"; };
    find("theme").addEventListener("click", () => {
      document.documentElement.dataset.theme = this.theme === "dark" ? "light" : "dark";
      name();
      this.redraw();
    });
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { name(); this.redraw(); });
    new ResizeObserver(() => this.redraw()).observe(find("panels"));
    name();
  }

  // --------------------------------------------------------------------------------------------------------- hints

  /** What stands beside the pointer. */
  hint(plan, { node, gap } = {}, event = null) {
    const tip = find("tip");
    tip.hidden = !plan || (node === undefined && !gap);
    if (tip.hidden) return;
    tip.replaceChildren(...(gap ? [plan.why(gap)] : this.about(plan, node)).map((line) => element("p", line)));
    const left = Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8);
    const below = event.clientY + 18 + tip.offsetHeight < window.innerHeight;
    tip.style.left = `${Math.max(left, 4)}px`;
    tip.style.top = `${below ? event.clientY + 18 : Math.max(event.clientY - tip.offsetHeight - 10, 4)}px`;
  }

  /** A block in lines: what it is, when, what it waited for, who reads it, what it holds and frees. */
  about(plan, node) {
    const lines = [plan.placed(node)];
    for (const part of plan.parts(node)) {
      const copy = plan.directions > 1 ? `, direction ${part.direction}` : "";
      lines.push(`${this.data.meaning[part.kind]}: stage ${part.stage}, micro-batch ${part.microbatch}${copy}`);
    }
    lines.push(`takes ${plan.time(plan.span[node])}`);
    const last = plan.link(node);
    if (last) lines.push(`waited longest: ${last}`);
    const sources = plan.inputs[node].map((source) => plan.placed(source));
    if (sources.length) lines.push(`reads: ${sources.join(", ")}`);
    const readers = plan.readers(node).map((reader) => plan.placed(reader));
    if (readers.length) lines.push(`read by: ${readers.join(", ")}`);
    const frees = plan.held[node] !== plan.kept[node];
    lines.push(`the rank holds ${plan.amount(plan.held[node])} activations${frees ? `, afterwards ${plan.amount(plan.kept[node])}` : ""}`);
    return lines;
  }

  // ------------------------------------------------------------------------------------------------------ selected

  /** Select a block or a gap, and show the chain that it waited for. */
  choose(plan, { node, gap }) {
    const nothing = !plan || (node === undefined && !gap);
    this.state.chosen = nothing ? null : { plan, node, gap, chain: gap ? gap.chain : plan.chain(node) };
    find("chosen").hidden = nothing;
    if (!nothing) this.explain(this.state.chosen);
    for (const pressed of document.querySelectorAll('[aria-pressed="true"]')) pressed.setAttribute("aria-pressed", "false");
    this.redraw();
  }

  explain({ plan, node, gap, chain }) {
    const lines = gap ? [plan.why(gap)] : this.about(plan, node);
    const about = find("chosen").querySelector(".about"), list = find("chosen").querySelector(".chain");
    about.replaceChildren(...lines.flatMap((line) => [line, document.createElement("br")]));
    const steps = gap && gap.done ? chain : chain.slice(1);
    this.list(list, steps, (step) => [plan.link(step) || `${plan.placed(step)} starts without waiting`, () => {
      this.choose(plan, { node: step });
      this.reveal(plan, plan.start[step], plan.end(step));
    }]);
  }

  /** A list of buttons, so many at a time. */
  list(root, items, made) {
    const some = items.slice(0, MANY).map((item) => {
      const [text, act] = made(item), button = element("button", text), line = element("li");
      button.type = "button";
      button.addEventListener("click", () => act(button));
      line.append(button);
      return line;
    });
    root.replaceChildren(...some);
    if (items.length <= MANY) return;
    const more = element("button", `${items.length - MANY} more`), line = element("li");
    more.type = "button";
    more.addEventListener("click", () => {
      line.remove();
      const rest = element("ol");
      this.list(rest, items.slice(MANY), made);
      root.append(...rest.children);
    });
    line.append(more);
    root.append(line);
  }

  /** Bring a stretch into view. */
  reveal(plan, begin, end) {
    const [from, to] = [begin / plan.scale, end / plan.scale], length = this.state.end - this.state.begin;
    if (from >= this.state.begin && to <= this.state.end) return;
    this.show((from + to) / 2 - length / 2, (from + to) / 2 + length / 2);
  }

  // -------------------------------------------------------------------------------------------------------- tables

  table(root, columns, rows, texts = []) {
    const head = element("tr"), kind = (index) => (texts.includes(index) ? "text" : "");
    columns.forEach((column, index) => head.append(element("th", column, kind(index))));
    root.replaceChildren(head, ...rows.map((row) => {
      const line = element("tr");
      row.forEach((cell, index) => line.append(element("td", cell, kind(index))));
      return line;
    }));
    return root;
  }

  comparison() {
    find("comparison").hidden = false;
    this.table(find("comparison").querySelector("table"), this.data.columns, this.plans.map((plan) => plan.summary), [0]);
    const note = element("p", this.data.note, "note");
    find("comparison").append(note);
  }

  details(plan) {
    const section = element("section");
    if (this.plans.length > 1) section.append(element("h2", plan.name));
    section.append(element("h3", "Ranks"), this.scrolled(plan.columns, plan.rows));
    section.append(element("h3", "Verdict"), this.scrolled(["property", "", "by", ""], plan.properties, [0, 1, 2, 3]));
    plan.notes.forEach((note) => section.append(element("p", note, "note")));
    if (plan.gaps.some((row) => row.length)) this.bubbles(section, plan);
    find("details").append(section);
  }

  scrolled(columns, rows, texts = []) {
    const box = element("div", "", "scroll");
    box.append(this.table(element("table"), columns, rows, texts));
    return box;
  }

  /** Why this bubble: every gap in words, of all ranks or of one. */
  bubbles(section, plan) {
    const pick = element("select"), list = element("ol", "", "why"), label = element("label", "show ");
    pick.append(new Option("all ranks, longest first", ""));
    for (let rank = 0; rank < plan.ranks; rank += 1) pick.append(new Option(`rank ${rank}`, String(rank)));
    const fill = () => {
      const ranks = pick.value === "" ? [...plan.gaps.keys()] : [Number(pick.value)];
      const gaps = ranks.flatMap((rank) => plan.gapsOf(rank));
      if (pick.value === "") gaps.sort((one, other) => other.end - other.begin - (one.end - one.begin) || one.begin - other.begin);
      this.list(list, gaps, (gap) => [plan.why(gap), (button) => {
        this.choose(plan, { gap });
        button.setAttribute("aria-pressed", "true");
        this.reveal(plan, gap.begin, gap.end);
      }]);
    };
    pick.addEventListener("change", fill);
    fill();
    label.append(pick);
    section.append(element("h3", "Why this bubble"), label, list);
  }
}

const report = new Page(JSON.parse(find("data").textContent));
