// What temperature, top-k, top-p and min-p make of rows of logits, in this order, each on the law that the one before left.

import { array, isArray } from "./encoding.mjs";
import { refuseUnless } from "./reading.mjs";

const RULES = {
  temperature: (t) => t >= 0 && Number.isFinite(t),
  top_k: (k) => Number.isInteger(k) && k >= 0,
  top_p: (p) => p > 0 && p <= 1,
  min_p: (p) => p >= 0 && p <= 1,
};

export function warp(given) {
  const { shape, data, dtype } = given.logits;
  const size = shape[shape.length - 1];
  const readable = (shape.length === 1 || shape.length === 2) && size > 0 && dtype === "float64";
  refuseUnless(readable, "case.logits", [], "are floating-point numbers of shape [V] or [R, V]");
  const rows = shape.length === 1 ? 1 : shape[0];
  const parameters = Object.keys(RULES).map((name) => oneARow(given[name], name, rows, shape.length));
  const warped = [];
  for (let r = 0; r < rows; r++) {
    const row = data.slice(r * size, (r + 1) * size);
    row.forEach((l, v) => refuseUnless(l < Infinity, "case.logits", [r, v], "is a finite number or −inf"));
    const highest = row.reduce((a, b) => Math.max(a, b));
    refuseUnless(highest > -Infinity, "case.logits", [r], "has a finite logit");
    warped.push(...law(row, highest, ...parameters.map((values) => values[r])));
  }
  return array("float64", shape, warped);
}

function oneARow(values, name, rows, dimensions) {
  const each = isArray(values) && values.shape.length > 0 ? values.data : new Array(rows).fill(isArray(values) ? values.data[0] : values);
  const fits = each.length === rows && !(dimensions === 1 && isArray(values) && values.shape.length > 0);
  refuseUnless(fits, `case.${name}`, [], "is one value, or one a row");
  each.forEach((value, r) => refuseUnless(RULES[name](value), `case.${name}`, [r], "is in its range"));
  return each;
}

function law(logits, highest, temperature, topK, topP, minP) {
  if (temperature === 0) return logits.map((_, v) => (v === logits.indexOf(highest) ? 1 : 0));
  const scaled = logits.map((logit) => below(logit, highest, temperature));
  let kept = logits.flatMap((logit, v) => (logit > -Infinity ? [v] : []));
  kept.sort((a, b) => logits[b] - logits[a] || a - b);
  if (topK > 0) kept = kept.slice(0, topK);
  if (topP < 1) {
    const row = softmax(scaled, kept);
    let reached = 0;
    const last = kept.findIndex((v) => (reached += row[v]) >= topP);
    if (last >= 0) kept = kept.slice(0, last + 1);
  }
  const row = softmax(scaled, kept);
  return softmax(scaled, kept.filter((v) => row[v] >= minP * row[kept[0]]));
}

// (logit − highest) / temperature, also where the difference of two finite logits overflows.
function below(logit, highest, temperature) {
  const difference = logit - highest;
  if (Number.isFinite(difference) || !Number.isFinite(logit)) return difference / temperature;
  return logit / temperature - highest / temperature;
}

function softmax(scaled, kept) {
  const row = new Array(scaled.length).fill(0);
  for (const v of kept) row[v] = Math.exp(scaled[v]);
  const total = row.reduce((sum, weight) => sum + weight, 0);
  return row.map((weight) => weight / total);
}
