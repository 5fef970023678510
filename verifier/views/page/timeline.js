/* The ranks of one schedule over time on a canvas. All timelines of a page share one stretch of time. */

const MARGIN = 64, AXIS = 22, STRIP = 16, SMALLEST = 8, SMALL = "11px system-ui, sans-serif";

const waiting = (block) => `waits at ${block}`;

/** Pixels to the right of the last end: where ranks hang, for what they wait at. */
function roomBeside(plan) {
  const ink = document.createElement("canvas").getContext("2d");
  ink.font = SMALL;
  return Math.max(12, ...plan.stuck.filter(Boolean).map((block) => ink.measureText(waiting(block)).width + 10));
}

class Timeline {
  constructor(plan, state, canvas) {
    Object.assign(this, { plan, state, canvas, ink: canvas.getContext("2d") });
    this.block = plan.ranks <= 8 ? 26 : plan.ranks <= 16 ? 22 : plan.ranks <= 32 ? 16 : 12;
  }

  get pitch() { return this.block + (this.state.memory ? STRIP + 4 : 4); }

  get wide() { return Math.max(this.canvas.clientWidth - MARGIN - this.state.right, 50); }

  /** Pixels from the left of a moment in ticks. */
  x(tick) {
    const { begin, end } = this.state;
    return MARGIN + ((tick / this.plan.scale - begin) / (end - begin)) * this.wide;
  }

  y(rank) { return AXIS + rank * this.pitch; }

  /** The moment in ticks at a pixel. */
  tick(x) { return this.unit(x) * this.plan.scale; }

  unit(x) { return this.state.begin + ((x - MARGIN) / this.wide) * (this.state.end - this.state.begin); }

  /** What is drawn at a pixel: {node}, {gap}, or nothing. */
  at(x, y) {
    const rank = Math.floor((y - AXIS) / this.pitch);
    if (rank < 0 || rank >= this.plan.ranks || x < MARGIN || y - this.y(rank) > this.block) return {};
    return this.plan.at(rank, this.tick(x));
  }

  draw() {
    const { canvas, ink, plan } = this;
    const height = AXIS + plan.ranks * this.pitch + 4, sharp = window.devicePixelRatio || 1;
    canvas.style.height = `${height}px`;
    canvas.width = Math.round(canvas.clientWidth * sharp);
    canvas.height = Math.round(height * sharp);
    this.colours = this.state.colours();
    ink.setTransform(sharp, 0, 0, sharp, 0, 0);
    ink.textBaseline = "middle";
    this.axis();
    this.measure();
    ink.save();
    ink.beginPath();
    ink.rect(MARGIN, 0, this.wide + (plan.stuck.some(Boolean) ? this.state.right : 1), height);
    ink.clip();
    for (let rank = 0; rank < plan.ranks; rank += 1) this.rank(rank);
    if (this.state.messages) this.messages();
    if (this.state.critical) this.path(plan.critical, this.colours.critical);
    const chosen = this.state.chosen;
    if (chosen && chosen.plan === plan) this.choice(chosen);
    ink.restore();
  }

  /** How wide the texts of blocks can be: all of it, kind and micro-batch, micro-batch. */
  measure() {
    const { widest } = this.plan;
    this.size = Math.min(12, this.block - 3);
    this.font = `${this.size}px system-ui, sans-serif`;
    this.ink.font = this.font;
    const [, kind, digits] = /^\d+(\w)(\d+)/.exec(widest);
    this.lengths = [widest, kind + digits, digits].map((text) => this.ink.measureText(text).width);
  }

  axis() {
    const { ink, plan, state } = this;
    ink.font = "12px system-ui, sans-serif";
    ink.fillStyle = this.colours.ink;
    ink.textAlign = "right";
    for (let rank = 0; rank < plan.ranks; rank += 1) ink.fillText(`rank ${rank}`, MARGIN - 8, this.y(rank) + this.block / 2);
    ink.fillStyle = this.colours.muted;
    ink.strokeStyle = this.colours.line;
    ink.textAlign = "center";
    ink.font = SMALL;
    const step = roundStep((70 / this.wide) * (state.end - state.begin));
    ink.beginPath();
    for (let number = Math.ceil(state.begin / step); number * step <= state.end; number += 1) {
      const x = this.x(number * step * plan.scale);
      ink.fillText(String(Number((number * step).toPrecision(10))), x, 8);
      ink.moveTo(x, 15);
      ink.lineTo(x, AXIS - 2);
    }
    ink.stroke();
  }

  rank(rank) {
    const { ink, plan, state } = this;
    const top = this.y(rank), begin = this.tick(MARGIN), end = this.tick(MARGIN + this.wide);
    if (plan.gaps[rank].length) {
      ink.fillStyle = this.hatch();
      ink.fillRect(this.x(0), top, this.x(plan.makespan) - this.x(0), this.block);
    }
    let drawn = -1;
    const next = plan.first[rank + 1];
    for (let node = plan.from(rank, begin); node < next && plan.start[node] < end; node += 1) {
      const left = this.x(plan.start[node]), right = this.x(plan.end(node));
      if (right - left < 0.5 && right - drawn < 0.5) continue; // Nothing of it would be seen.
      this.box(node, left, top, Math.max(right - left, 0.5));
      drawn = right;
    }
    const stuck = plan.stuck[rank];
    if (stuck) {
      ink.fillStyle = this.colours.critical;
      ink.textAlign = "left";
      ink.font = SMALL;
      ink.fillText(waiting(stuck), this.x(next > plan.first[rank] ? plan.end(next - 1) : 0) + 4, top + this.block / 2);
    }
    if (state.memory) this.memory(rank, begin, end);
  }

  /** A block: one or two coloured parts in one frame, with as much text as fits. */
  box(node, left, top, width) {
    const { ink, plan, block } = this;
    const parts = plan.parts(node), each = width / parts.length;
    parts.forEach((part, index) => {
      const [fill, letters] = this.state.paint(part, plan);
      ink.fillStyle = fill;
      ink.fillRect(left + index * each, top, each, block);
      if (each < 8 || block < 12) return;
      ink.fillStyle = letters;
      ink.textAlign = "center";
      ink.font = this.font;
      // The same amount of text in all blocks of a width, so that none looks special.
      const texts = [plan.partText(part), this.state.stages ? `${part.kind}${part.microbatch}` : "", String(part.microbatch)];
      const text = texts.find((words, level) => words && this.lengths[level] <= each - 3);
      // Where only the micro-batch could stand, it does in smaller letters.
      const size = text ? this.size : Math.floor((this.size * (each - 2)) / this.lengths[2]);
      if (size < SMALLEST) return;
      if (!text) ink.font = `${size}px system-ui, sans-serif`;
      ink.fillText(text || texts[2], left + (index + 0.5) * each, top + block / 2 + 0.5);
    });
    if (width < 4) return;
    const pair = parts.length > 1;
    ink.strokeStyle = pair ? this.colours.pair : this.colours.frame;
    ink.lineWidth = pair ? 1.5 : 0.6;
    ink.strokeRect(left + (pair ? 0.5 : 0), top, width - (pair ? 1 : 0), block);
  }

  /** Live activations below the blocks, as high as the most that any rank holds. */
  memory(rank, begin, end) {
    const { ink, plan } = this;
    const floor = this.y(rank) + this.block + STRIP, high = (steps) => ((STRIP - 2) * steps) / plan.most;
    ink.fillStyle = this.colours.memory;
    const next = plan.first[rank + 1];
    for (let node = Math.max(plan.from(rank, begin) - 1, plan.first[rank]); node < next && plan.start[node] < end; node += 1) {
      const ends = [plan.start[node], plan.end(node), node + 1 < next ? plan.start[node + 1] : plan.makespan];
      const [left, middle, right] = ends.map((tick) => Math.round(this.x(tick))); // Whole pixels leave no seams.
      ink.fillRect(left, floor - high(plan.held[node]), middle - left, high(plan.held[node]));
      ink.fillRect(middle, floor - high(plan.kept[node]), right - middle, high(plan.kept[node]));
    }
  }

  /** A line from every block to those on other ranks that read its results. */
  messages() {
    const { ink, plan } = this;
    const begin = this.tick(MARGIN), end = this.tick(MARGIN + this.wide);
    ink.strokeStyle = this.colours.ink;
    ink.globalAlpha = 0.55;
    ink.lineWidth = 0.8;
    ink.beginPath();
    plan.inputs.forEach((sources, reader) => {
      if (plan.start[reader] < begin) return;
      for (const source of sources) {
        if (plan.rankOf[source] !== plan.rankOf[reader] && plan.end(source) <= end) this.line(source, reader);
      }
    });
    ink.stroke();
    ink.globalAlpha = 1;
  }

  /** From the end of a block to the beginning of another, with a head. */
  line(source, reader) {
    const { ink, plan } = this;
    const [from, to] = [plan.rankOf[source], plan.rankOf[reader]];
    const down = to > from ? 1 : -1;
    const x = this.x(plan.end(source)), y = this.y(from) + (down > 0 ? this.block : 0);
    const toX = this.x(plan.start[reader]), toY = this.y(to) + (down > 0 ? 0 : this.block);
    ink.moveTo(x, y);
    ink.lineTo(toX, toY);
    ink.moveTo(toX - 3, toY - 4 * down);
    ink.lineTo(toX, toY);
    ink.lineTo(toX + 3, toY - 4 * down);
  }

  /** Blocks in the order of time, outlined and joined across ranks. */
  path(nodes, colour) {
    const { ink, plan, block } = this;
    ink.strokeStyle = colour;
    ink.lineWidth = 2;
    for (let index = 0; index < nodes.length; index += 1) {
      const begin = index, rank = plan.rankOf[nodes[index]];
      while (nodes[index + 1] === nodes[index] + 1 && plan.rankOf[nodes[index + 1]] === rank) index += 1;
      const left = this.x(plan.start[nodes[begin]]), right = this.x(plan.end(nodes[index]));
      ink.strokeRect(left + 1, this.y(rank) + 1, Math.max(right - left - 2, 1), block - 2);
      const next = nodes[index + 1];
      if (next === undefined || plan.rankOf[next] === rank) continue;
      ink.beginPath();
      ink.moveTo(right, this.y(rank) + block / 2);
      ink.lineTo(this.x(plan.start[next]), this.y(plan.rankOf[next]) + block / 2);
      ink.stroke();
    }
  }

  /** The chosen block or gap with the chain that it waited for. */
  choice({ gap, chain }) {
    const { ink } = this;
    this.path([...chain].reverse(), this.colours.chosen);
    ink.lineWidth = 3;
    if (gap) ink.strokeRect(this.x(gap.begin), this.y(gap.rank), this.x(gap.end) - this.x(gap.begin), this.block);
    else this.path(chain.slice(0, 1), this.colours.chosen);
  }

  hatch() {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 7;
    const ink = tile.getContext("2d");
    ink.strokeStyle = this.colours.idle;
    ink.beginPath();
    for (const shift of [-7, 0, 7]) {
      ink.moveTo(shift - 1, 8);
      ink.lineTo(shift + 8, -1);
    }
    ink.stroke();
    return this.ink.createPattern(tile, "repeat");
  }
}

/** The smallest of 1, 2 and 5 times a power of ten that is not below a number. */
function roundStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least * (1 - 1e-9));
}
