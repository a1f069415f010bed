// Golden vectors in JavaScript, without packages: `node consumer.mjs FIXTURES right|wrong`, exit code 0 or 1.

import { readFileSync } from "node:fs";
import { isDeepStrictEqual } from "node:util";

const SPECIAL = { poison: NaN, inf: Infinity, "-inf": -Infinity };

function refuse(rule) {
  throw new RangeError(rule);
}

// The best nodes by (−value, depth, id), as many as the budget allows.
function selectNodes({ case: { tree, budget } }) {
  if (budget < 0) refuse("a budget is at least 0");
  const names = ["parent", "token", "confidence", "log_value", "depth"];
  const [parent, token, confidence, value, depth] = names.map((name) => tree[name].data.map((v) => SPECIAL[v] ?? v));
  if (names.some((name) => tree[name].data.length !== parent.length)) refuse("vectors have one entry a node");
  if (tree.token.dtype !== "int64" || tree.parent.dtype !== "int64") refuse("ids are integers");
  const families = new Map();
  parent.forEach((above, i) => {
    if (above < -1 || above >= i) refuse("a parent is −1 or an earlier node");
    if (depth[i] !== (above < 0 ? 1 : depth[above] + 1)) refuse("a depth is one more than the parent's");
    if (!(confidence[i] >= 0 && confidence[i] <= 1)) refuse("a confidence lies in [0, 1]");
    if (!(value[i] <= (above < 0 ? 0 : value[above]))) refuse("a value is at most the parent's");
    const family = families.get(above) ?? { tokens: new Set(), mass: 0 };
    families.set(above, family);
    if (family.tokens.has(token[i])) refuse("siblings have different tokens");
    family.tokens.add(token[i]);
    family.mass += confidence[i];
    if (family.mass > 1 + 1e-9) refuse("confidences of siblings sum to at most one");
  });
  const before = (a, b) => value[b] - value[a] || depth[a] - depth[b] || a - b;
  const order = parent.map((_, i) => i).sort(before).slice(0, budget);
  return { dtype: "int64", shape: [order.length], data: order };
}

// Sorts by the confidence of the node alone, not by the value of its whole path.
function selectByConfidence({ case: { tree, budget } }) {
  const order = tree.confidence.data.map((_, i) => i);
  order.sort((a, b) => tree.confidence.data[b] - tree.confidence.data[a]);
  return { dtype: "int64", shape: [Math.min(budget, order.length)], data: order.slice(0, budget) };
}

function greedy({ cases }, tied = (v, best) => v < best) {
  return cases.map(({ parent, token, target_probs: rows }) => {
    const width = rows.shape[1];
    const path = [];
    for (let node = -1; ; ) {
      const row = rows.data.slice((node + 1) * width, (node + 2) * width).map((p) => SPECIAL[p] ?? p);
      if (row.some(Number.isNaN) || token.data.includes(-1)) refuse("a row that is read holds NaN, or a draft is none");
      let best = 0;
      row.forEach((p, v) => (best = p > row[best] || (p === row[best] && tied(v, best)) ? v : best));
      const child = parent.data.findIndex((above, i) => above === node && token.data[i] === best);
      if (child < 0) return { type: "Decision", path, frontier: best };
      path.push(child);
      node = child;
    }
  });
}

const IMPLEMENTATIONS = {
  right: { "tree/select_nodes": selectNodes, "acceptance/verify_greedy": greedy },
  // among tied tokens the last one wins
  wrong: { "tree/select_nodes": selectByConfidence, "acceptance/verify_greedy": (input) => greedy(input, () => true) },
};

function passes(implementation, { input, expected }) {
  const given = structuredClone(input);
  const ways = expected.value?.relation === "one_of" ? expected.value : { answers: [expected.value] };
  try {
    const answer = implementation(given);
    if (expected.refused || !isDeepStrictEqual(given, input)) return false;
    return ways.answers.some((one) => isDeepStrictEqual(answer, one));
  } catch (error) {
    return error instanceof RangeError && Boolean(expected.refused ?? ways.refused);
  }
}

const [folder, which] = process.argv.slice(2);
let failed = 0;
for (const [name, implementation] of Object.entries(IMPLEMENTATIONS[which])) {
  for (const one of JSON.parse(readFileSync(`${folder}/${name}.json`, "utf8")).cases) {
    if (passes(implementation, one)) continue;
    failed += 1;
    console.log(`${name} ${one.id} ${one.clauses.join(" ")}: ${one.description}`);
  }
}
console.log(`${failed} failed`);
process.exitCode = failed > 0 ? 1 : 0;
