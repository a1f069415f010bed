// Draft trees: grown from a drafter's table, cut to a budget, laid out as rows. A node is a drafted token; −1 is the root.

import { array, floats, ids } from "./encoding.mjs";
import { BadInput, Table, TOLERANCE, integers, law, numbers, parents, refuseUnless, whole } from "./reading.mjs";

const FLOOR = 1e-12; // smaller confidences count as this in a value, and stay as they are

export function growTree(given) {
  const width = whole(given.expand_width, "expand_width", 1);
  const branches = whole(given.branch_width, "branch_width", 1);
  const deepest = whole(given.max_depth, "max_depth", 0);
  const targets = given.draft_map ? draftToTarget(given.draft_map) : null;
  const table = new Table(given.table, "table");
  refuseUnless(!table.layers || table.layers.length >= deepest, "table", [], "has a layer for each depth");
  let vocabulary = targets ? targets.length : null;
  const nodes = [];
  let frontier = [{ id: -1, prefix: [], value: 0 }];
  for (let depth = 1; depth <= deepest; depth++) {
    const latest = [];
    for (const above of frontier) {
      const row = law(table.row(above.prefix), "table", above.prefix, true);
      vocabulary ??= row.length;
      refuseUnless(row.length > 0 && row.length === vocabulary, "table", above.prefix, "has a number for each token");
      const children = row.map((confidence, v) => ({ token: targets ? targets[v] : v, confidence }));
      children.sort((a, b) => b.confidence - a.confidence || a.token - b.token);
      for (const { token, confidence } of children.slice(0, branches)) {
        const value = above.value + Math.log(Math.max(confidence, FLOOR));
        const node = { id: nodes.length, parent: above.id, token, confidence, value, depth, prefix: [...above.prefix, token] };
        nodes.push(node);
        latest.push(node);
      }
    }
    frontier = latest.sort(byValue).slice(0, width);
  }
  return {
    type: "CandidateTree",
    parent: ids(nodes.map((node) => node.parent)),
    token: ids(nodes.map((node) => node.token)),
    confidence: floats(nodes.map((node) => node.confidence)),
    log_value: floats(nodes.map((node) => node.value)),
    depth: ids(nodes.map((node) => node.depth)),
  };
}

function byValue(a, b) {
  if (a.value !== b.value) return b.value > a.value ? 1 : -1; // infinities have no difference
  return a.depth - b.depth || a.id - b.id;
}

function draftToTarget(map) {
  const offsets = integers(map.d2t, "d2t");
  refuseUnless(["offset", "absolute"].includes(map.convention), "convention", [], "is offset or absolute");
  const targets = offsets.map((d, i) => (map.convention === "offset" ? i + d : d));
  targets.forEach((target, i) => refuseUnless(target >= 0 && targets.indexOf(target) === i, "d2t", [i], "is an id of its own"));
  if (map.t2d) {
    const inside = targets.every((target) => target < map.t2d.data.length);
    const marked = map.t2d.data.every((mark, v) => mark === targets.includes(v));
    refuseUnless(inside && marked, "t2d", [], "marks exactly the mapped ids");
  }
  return targets;
}

function candidates(tree, field) {
  const parent = parents(tree.parent, `${field}.parent`);
  const size = parent.length;
  const token = integers(tree.token, `${field}.token`, size);
  const depth = integers(tree.depth, `${field}.depth`, size);
  const confidence = numbers(tree.confidence, `${field}.confidence`, size);
  const value = numbers(tree.log_value, `${field}.log_value`, size);
  const families = new Map();
  parent.forEach((above, i) => {
    const refuse = (name, rule) => {
      throw new BadInput(`${field}.${name}`, [i], rule);
    };
    if (depth[i] !== (above < 0 ? 1 : depth[above] + 1)) refuse("depth", "is one more than the parent's");
    if (token[i] < 0) refuse("token", "is at least 0");
    if (!(confidence[i] >= 0 && confidence[i] <= 1)) refuse("confidence", "lies in [0, 1]");
    if (!(value[i] <= (above < 0 ? 0 : value[above]))) refuse("log_value", "is at most that of the parent");
    const family = families.get(above) ?? { tokens: new Set(), mass: 0 };
    families.set(above, family);
    if (family.tokens.has(token[i])) refuse("token", "siblings have different tokens");
    family.tokens.add(token[i]);
    family.mass += confidence[i];
    if (family.mass > 1 + TOLERANCE) refuse("confidence", "those of siblings sum to at most one");
  });
  return parent.map((above, id) => ({ id, parent: above, token: token[id], depth: depth[id], value: value[id] }));
}

export function selectNodes({ tree, budget }) {
  whole(budget, "budget", 0);
  return ids(candidates(tree, "tree").sort(byValue).slice(0, budget).map((node) => node.id));
}

export function flattenTree(cases) {
  return cases.map((given, i) => flatten(given, `cases[${i}]`));
}

export function draftTree(cases) {
  return cases.map(({ growth, budget, base }, i) => {
    const tree = growTree(growth);
    return flatten({ tree, selected: selectNodes({ tree, budget }), base }, `cases[${i}]`);
  });
}

function flatten({ tree, selected, base }, field) {
  whole(base, `${field}.base`, 0);
  const nodes = candidates(tree, `${field}.tree`);
  const chosen = new Set();
  const wanted = integers(selected, `${field}.selected`);
  wanted.forEach((node, i) => {
    refuseUnless(node >= 0 && node < nodes.length && !chosen.has(node), `${field}.selected`, [i], "is a node, named once");
    chosen.add(node);
  });
  const closed = (node) => nodes[node].parent < 0 || chosen.has(nodes[node].parent);
  wanted.forEach((node, i) => refuseUnless(closed(node), `${field}.selected`, [i], "comes with its parent"));
  const rows = wanted.map((node) => nodes[node]).sort((a, b) => a.depth - b.depth || a.id - b.id);
  const rowOf = new Map(rows.map((node, row) => [node.id, row]));
  const parent = rows.map((node) => (node.parent < 0 ? -1 : rowOf.get(node.parent)));
  return {
    type: "FlatTree",
    node: ids(rows.map((node) => node.id)),
    parent: ids(parent),
    token: ids(rows.map((node) => node.token)),
    depth: ids(rows.map((node) => node.depth)),
    visible: visibility(parent),
    paths: leafPaths(parent),
    first_child: ids(parent.map((_, row) => parent.indexOf(row))),
    next_sibling: ids(parent.map((above, row) => parent.indexOf(above, row + 1))),
    position: ids([base, ...rows.map((node) => base + node.depth)]),
  };
}

export function treeVisibility(parent) {
  return visibility(parents(parent, "parent"));
}

function walk(parent, row) {
  const path = [];
  for (let node = row; node >= 0; node = parent[node]) path.unshift(node);
  return path;
}

function visibility(parent) {
  const size = parent.length;
  const data = new Array(size * size).fill(false);
  parent.forEach((_, row) => walk(parent, row).forEach((seen) => (data[row * size + seen] = true)));
  return array("bool", [size, size], data);
}

function leafPaths(parent) {
  const inner = new Set(parent);
  const paths = parent.flatMap((_, row) => (inner.has(row) ? [] : [walk(parent, row)]));
  const longest = Math.max(0, ...paths.map((path) => path.length));
  const padded = paths.map((path) => [...path, ...new Array(longest - path.length).fill(-1)]);
  return array("int64", [paths.length, longest], padded.flat());
}

export function treeMask(cases) {
  return cases.map(({ parent, prefix, form }, i) => {
    whole(prefix, `cases[${i}].prefix`, 0);
    const above = parents(parent, `cases[${i}].parent`);
    const inside = visibility(above).data;
    const lines = above.length + 1;
    const columns = prefix + lines;
    const sees = (r, c) => c <= prefix || (r > 0 && inside[(r - 1) * above.length + c - prefix - 1]);
    const each = (entry) => Array.from({ length: lines * columns }, (_, k) => entry(sees(Math.floor(k / columns), k % columns)));
    if (form === "allowed") return array("bool", [lines, columns], each((seen) => seen));
    if (form === "blocked") return array("bool", [lines, columns], each((seen) => !seen));
    if (form === "additive") return array("float64", [lines, columns], each((seen) => (seen ? 0 : -Infinity)));
    refuseUnless(["packed8", "packed16", "packed32"].includes(form), `cases[${i}].form`, [], "is the name of a form");
    return packed(sees, lines, columns, Number(form.slice(6)));
  });
}

function packed(sees, lines, columns, width) {
  const words = Math.ceil(columns / width);
  const data = new Array(lines * words).fill(0);
  for (let r = 0; r < lines; r++) {
    for (let c = 0; c < columns; c++) {
      if (sees(r, c)) data[r * words + Math.floor(c / width)] += 2 ** (c % width);
    }
  }
  return array(`uint${width}`, [lines, words], data);
}
