"use strict";

/* One schedule: what its blocks are, what they wait for, and how that is said. Whatever comes from files is only ever text. */

const KINDS = ["F", "B", "I", "W"];

/** Ticks as a number for people: a decimal where a short one is exact, else a fraction. */
function shown(ticks, scale) {
  let top = BigInt(ticks), bottom = BigInt(scale);
  for (let digits = 0; digits < 5; digits += 1) {
    const power = 10n ** BigInt(digits);
    if ((top * power) % bottom === 0n) {
      const scaled = (top * power) / bottom;
      return digits ? `${scaled / power}.${String(scaled % power).padStart(digits, "0")}` : String(scaled);
    }
  }
  let [a, b] = [top, bottom];
  while (b) [a, b] = [b, a % b];
  return `${top / a}/${bottom / a}`;
}

class Plan {
  constructor(raw) {
    Object.assign(this, raw);
    const blocks = this.start.length;
    this.ranks = this.homes.length;
    this.rankOf = new Uint32Array(blocks);
    for (let rank = 0; rank < this.ranks; rank += 1) this.rankOf.fill(rank, this.first[rank], this.first[rank + 1]);
    this.partFrom = new Uint32Array(blocks + 1);
    const pairs = new Set(this.pairs);
    for (let node = 0; node < blocks; node += 1) this.partFrom[node + 1] = this.partFrom[node] + (pairs.has(node) ? 2 : 1);
  }

  /** The longest text that a part can have. */
  get widest() {
    const digits = (numbers) => "8".repeat(String(numbers.reduce((most, number) => Math.max(most, number), 0)).length);
    return `${digits([this.stages - 1])}W${digits(this.microbatch)}${this.primes && this.directions > 1 ? "'" : ""}`;
  }

  time(ticks) { return shown(ticks, this.scale); }

  end(node) { return this.start[node] + this.span[node]; }

  /** The one or two sides of a block. */
  parts(node) {
    const found = [];
    for (let index = this.partFrom[node]; index < this.partFrom[node + 1]; index += 1) {
      const code = this.code[index], home = code >> 2;
      const [direction, stage] = this.homes[this.rankOf[node]][home];
      found.push({ kind: KINDS[code & 3], tone: home % 2, direction, stage, microbatch: this.microbatch[index] });
    }
    return found;
  }

  partText(part) { return `${part.stage}${part.kind}${part.microbatch}${this.primes && part.direction ? "'" : ""}`; }

  text(node) {
    const words = this.parts(node).map((part) => this.partText(part));
    return words.length === 1 ? words[0] : `(${words.join(";")})`;
  }

  placed(node) {
    return `${this.text(node)} on rank ${this.rankOf[node]} (${this.time(this.start[node])} to ${this.time(this.end(node))})`;
  }

  /** What a block waited for longest, in the words of verifier.gaps.link. */
  link(node) {
    const cause = this.cause[node], read = this.read[node];
    if (cause < 0) return "";
    if (read === 0) return `${this.text(node)} runs after ${this.placed(cause)}`;
    const hop = this.rankOf[cause] === this.rankOf[node] ? 0 : this.start[node] - this.end(cause);
    const what = read === 1 ? this.placed(cause) : `${read} in ${this.placed(cause)}`;
    return `${this.text(node)} needs ${what}${hop ? ` and ${this.time(hop)} on the way` : ""}`;
  }

  /** What every block of a chain but the last waited for, in the words of verifier.gaps.links. */
  links(chain) {
    const told = [], last = chain.length - 1;
    const follows = (at) => chain[at + 1] === chain[at] - 1 && this.rankOf[chain[at]] === this.rankOf[chain[at + 1]];
    for (let index = 0; index < last;) {
      let end = index;
      while (end < last && follows(end)) end += 1;
      if (end - index < 2) {
        told.push(this.link(chain[index]));
        index += 1;
        continue;
      }
      const [latest, earliest] = [chain[index + 1], chain[end]];
      const when = `${this.time(this.start[earliest])} to ${this.time(this.end(latest))}`;
      const names = `${this.text(earliest)} to ${this.text(latest)} on rank ${this.rankOf[latest]}`;
      told.push(`${this.text(chain[index])} runs after ${names} (${when})`);
      index = end;
    }
    return told;
  }

  /** A block, its cause, the cause of that, and so on; as many as are asked for. */
  chain(node, length = Infinity) {
    const found = [];
    for (; node >= 0 && found.length < length; node = this.cause[node]) found.push(node);
    return found;
  }

  /** The gaps of a rank: {rank, position, begin, end, chain}. */
  gapsOf(rank) {
    return this.gaps[rank].map(([position, begin, end, length]) => {
      const node = this.first[rank] + position;
      const done = node === this.first[rank + 1];
      return { rank, begin, end, done, chain: this.chain(done ? this.last : node, length) };
    });
  }

  /** A gap in the words of verifier.gaps.why. */
  why(gap) {
    const reasons = gap.done ? [`it is done; the last to end is ${this.placed(this.last)}`] : [];
    reasons.push(...this.links(gap.chain));
    return `rank ${gap.rank} idles from ${this.time(gap.begin)} to ${this.time(gap.end)}: ${reasons.join("; ")}`;
  }

  /** Who reads the results of a block. */
  readers(node) {
    if (!this.readersOf) {
      this.readersOf = this.inputs.map(() => []);
      this.inputs.forEach((sources, reader) => sources.forEach((source) => this.readersOf[source].push(reader)));
    }
    return this.readersOf[node];
  }

  /** The first block of a rank that ends after a moment; one past the last where there is none. */
  from(rank, tick) {
    let [low, high] = [this.first[rank], this.first[rank + 1]];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.end(middle) > tick) high = middle; else low = middle + 1;
    }
    return low;
  }

  /** What a rank does at a moment: {node}, {gap}, or nothing. */
  at(rank, tick) {
    const node = this.from(rank, tick);
    if (node < this.first[rank + 1] && this.start[node] <= tick) return { node };
    const gap = this.gapsOf(rank).find(({ begin, end }) => begin <= tick && tick < end);
    return gap ? { gap } : {};
  }

  amount(steps) { return shown(steps, this.steps); }
}
