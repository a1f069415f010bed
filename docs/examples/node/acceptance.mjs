// Exact verification of drafted trees, one coin a node, and drafting from a table.

import { array } from "./encoding.mjs";
import { Table, integers, law, parents, refuseUnless, whole } from "./reading.mjs";

const PROPOSALS = ["point", "iid", "without_replacement"];

// A request whose structure is read whole; its rows are read when the walk comes to them.
class Request {
  constructor(given, field) {
    this.field = field;
    this.proposal = given.proposal;
    refuseUnless(PROPOSALS.includes(given.proposal), `${field}.proposal`, [], `is one of ${PROPOSALS.join(", ")}`);
    this.parent = parents(given.parent, `${field}.parent`);
    this.size = this.parent.length;
    this.token = integers(given.token, `${field}.token`, this.size);
    this.target = this.matrix(given.target_probs, "target_probs");
    this.vocabulary = this.target.shape[1];
    this.draft = this.proposal === "point" ? null : this.matrix(given.draft_probs, "draft_probs");
    this.children = Array.from({ length: this.size + 1 }, () => []);
    this.parent.forEach((above, i) => {
      const token = this.token[i];
      const siblings = this.children[above + 1];
      const twin = this.proposal !== "iid" && siblings.some((child) => this.token[child] === token);
      refuseUnless(token >= 0 && token < this.vocabulary && !twin, `${field}.token`, [i], "is a token, no sibling's twin");
      siblings.push(i);
    });
  }

  matrix(rows, name) {
    const fits = rows && rows.shape.length === 2 && rows.shape[0] === this.size + 1 && rows.shape[1] > 0;
    const agrees = fits && (!this.vocabulary || rows.shape[1] === this.vocabulary);
    refuseUnless(agrees, `${this.field}.${name}`, [], "has a row for the root and each node");
    return rows;
  }

  // The row after a node; −1 is the root.
  row(rows, name, node) {
    const start = (node + 1) * this.vocabulary;
    return law(rows.data.slice(start, start + this.vocabulary), `${this.field}.${name}`, [node + 1]);
  }
}

const sum = (row) => row.reduce((total, value) => total + value, 0);

function argmax(row) {
  return row.indexOf(Math.max(...row));
}

function inverseCdf(row, coin) {
  let cumulative = 0;
  let last = 0;
  for (let v = 0; v < row.length; v++) {
    cumulative += row[v];
    if (row[v] > 0) {
      last = v;
      if (coin < cumulative) return v;
    }
  }
  return last;
}

// (p − q)+ renormalised, or p where rounding leaves nothing of it.
function residual(p, q) {
  const left = p.map((value, v) => Math.max(value - q[v], 0));
  const total = sum(left);
  return total > 0 ? left.map((value) => value / total) : p;
}

function without(q, token) {
  const left = q.map((value, v) => (v === token ? 0 : value));
  const total = sum(left);
  return total > 0 ? left.map((value) => value / total) : left;
}

function decision(path, frontier) {
  return { type: "Decision", path, frontier };
}

export function verifyGreedy(cases) {
  return cases.map((given, i) => {
    const request = new Request(given, `cases[${i}]`);
    const path = [];
    for (let node = -1; ; ) {
      const best = argmax(request.row(request.target, "target_probs", node));
      const child = request.children[node + 1].find((one) => request.token[one] === best);
      if (child === undefined) return decision(path, best);
      path.push(child);
      node = child;
    }
  });
}

// coin(node) is the coin of a node, coin(-1) the frontier's.
function walk(request, coin) {
  const path = [];
  for (let node = -1; ; ) {
    const children = request.children[node + 1];
    let p = request.row(request.target, "target_probs", node);
    let q = children.length && request.draft ? request.row(request.draft, "draft_probs", node) : null;
    let accepted = null;
    for (const child of children) {
      const token = request.token[child];
      const ordered = request.proposal !== "without_replacement" || sum(q) > 0;
      refuseUnless(ordered, `${request.field}.token`, [child], "siblings stay within the support");
      if (coin(child) * (q ? q[token] : 1) < p[token]) {
        accepted = child;
        break;
      }
      p = residual(p, q ?? p.map((_, v) => (v === token ? 1 : 0)));
      if (request.proposal === "without_replacement") q = without(q, token);
    }
    if (accepted === null) return decision(path, inverseCdf(p, coin(-1)));
    path.push(accepted);
    node = accepted;
  }
}

export function verifySampled(cases, coins) {
  refuseUnless(coins.length === cases.length, "coins", [], "are one for each case");
  return cases.map((given, i) => {
    const request = new Request(given, `cases[${i}]`);
    const { accept, frontier } = coins[i];
    const fits = accept.shape.length === 1 && accept.data.length === request.size;
    refuseUnless(fits, `coins[${i}].accept`, [], "has a coin for each node");
    return walk(request, (node) => {
      const coin = node < 0 ? frontier : accept.data[node];
      refuseUnless(coin >= 0 && coin < 1, `coins[${i}]`, [], "a coin lies in [0, 1)");
      return coin;
    });
  });
}

export function verifyRandom(cases, seed) {
  const random = generator(seed);
  return cases.map((given, i) => walk(new Request(given, `cases[${i}]`), random));
}

// xoshiro128**, seeded by a mixer: 53 random bits a call.
function generator(seed) {
  whole(seed, "seed", 0);
  let mixed = (seed ^ Math.floor(seed / 2 ** 32) ^ 0x9e3779b9) >>> 0;
  const state = Uint32Array.from({ length: 4 }, () => {
    mixed = (mixed + 0x9e3779b9) >>> 0;
    let z = Math.imul(mixed ^ (mixed >>> 16), 0x85ebca6b);
    z = Math.imul(z ^ (z >>> 13), 0xc2b2ae35);
    return (z ^ (z >>> 16)) >>> 0;
  });
  const rotated = (x, k) => (x << k) | (x >>> (32 - k));
  const next = () => {
    const drawn = Math.imul(rotated(Math.imul(state[1], 5), 7), 9) >>> 0;
    const shifted = state[1] << 9;
    state[2] ^= state[0];
    state[3] ^= state[1];
    state[1] ^= state[2];
    state[0] ^= state[3];
    state[2] ^= shifted;
    state[3] = rotated(state[3], 11);
    return drawn;
  };
  return () => ((next() >>> 5) * 2 ** 26 + (next() >>> 6)) / 2 ** 53;
}

export function propose(given) {
  const { proposal } = given;
  refuseUnless(PROPOSALS.includes(proposal), "case.proposal", [], `is one of ${PROPOSALS.join(", ")}`);
  const trials = whole(given.trials, "case.trials", 0);
  const above = parents(given.parent, "case.parent");
  const table = new Table(given.table, "case.table");
  const vocabulary = table.row([]).length;
  const random = generator(given.seed);
  const inner = new Set(above);
  const tokens = [];
  const rows = [];
  for (let trial = 0; trial < trials; trial++) {
    const prefixes = [[]];
    const drawn = [];
    above.forEach((parent, i) => {
      const prefix = prefixes[parent + 1];
      const row = law(table.row(prefix), "case.table", prefix, proposal === "point");
      const earlier = drawn.filter((_, j) => above[j] === parent);
      drawn.push(draft(row, earlier, proposal, random(), i));
      prefixes.push([...prefix, drawn[i]]);
    });
    tokens.push(...drawn);
    prefixes.forEach((prefix, node) => rows.push(...(inner.has(node - 1) ? table.row(prefix) : new Array(vocabulary).fill(0))));
  }
  return {
    type: "Proposals",
    token: array("int64", [trials, above.length], tokens),
    draft_probs: array("float64", [trials, above.length + 1, vocabulary], rows),
  };
}

function draft(row, earlier, proposal, coin, node) {
  if (proposal === "iid") return inverseCdf(row, coin);
  const left = earlier.reduce(without, row);
  refuseUnless(sum(left) > 0, "case.parent", [node], "siblings stay within the support");
  return proposal === "point" ? argmax(row.map((p, v) => (earlier.includes(v) ? 0 : p))) : inverseCdf(left, coin);
}
