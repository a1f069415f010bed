// Reading input: what breaks a rule is refused, by field, index and rule. Structure is read whole, numbers where they
// are used.

import { isArray } from "./encoding.mjs";

export const TOLERANCE = 1e-9;

export class BadInput extends Error {
  constructor(field, index, rule) {
    super(rule);
    this.place = { field, index };
  }
}

export function refuseUnless(holds, field, index, rule) {
  if (!holds) throw new BadInput(field, index, rule);
}

export function whole(value, field, least) {
  refuseUnless(Number.isInteger(value) && value >= least, field, [], `is a whole number of at least ${least}`);
  return value;
}

export function integers(array, field, size = null) {
  refuseUnless(isArray(array) && array.shape.length === 1, field, [], "is a vector");
  refuseUnless(array.dtype === "int64" || array.data.length === 0, field, [], "holds integers");
  refuseUnless(size === null || array.data.length === size, field, [], `has ${size} entries`);
  return array.data;
}

export function numbers(array, field, size) {
  refuseUnless(isArray(array) && array.shape.length === 1 && array.data.length === size, field, [], `has ${size} entries`);
  refuseUnless(array.dtype !== "bool", field, [], "holds numbers");
  return array.data;
}

export function parents(array, field) {
  const above = integers(array, field);
  above.forEach((parent, i) => refuseUnless(parent >= -1 && parent < i, field, [i], "is −1 or an earlier node"));
  return above;
}

// A row of probabilities; with mayOmitMass its sum may be less than one.
export function law(row, field, index, mayOmitMass = false) {
  row.forEach((p, v) => refuseUnless(p >= 0 && p <= 1 + TOLERANCE, field, [...index, v], "lies in [0, 1]"));
  const total = row.reduce((sum, p) => sum + p, 0);
  const least = mayOmitMass ? 0 : 1 - TOLERANCE;
  refuseUnless(total >= least && total <= 1 + TOLERANCE, field, index, "sums to one");
  return row;
}

// The rows of a drafter's table: a list of [prefix, row] pairs, or layers, of which layer l has the shape [V] * l + [V].
export class Table {
  constructor(table, field) {
    this.field = field;
    refuseUnless(Array.isArray(table), field, [], "is layers, or a list of [prefix, row] pairs");
    this.layers = table.length > 0 && table.every(isArray) ? table : null;
    this.rows = this.layers ? null : new Map(table.map(([prefix, row]) => [prefix.join(), isArray(row) ? row.data : row]));
  }

  row(prefix) {
    const rule = "there is a row for each prefix that is drafted from";
    if (!this.layers) {
      refuseUnless(this.rows.has(prefix.join()), this.field, prefix, rule);
      return this.rows.get(prefix.join());
    }
    const layer = this.layers[prefix.length];
    refuseUnless(layer && layer.shape.length === prefix.length + 1, this.field, [prefix.length], rule);
    const width = layer.shape[prefix.length];
    let start = 0;
    prefix.forEach((token, place) => {
      refuseUnless(token < layer.shape[place], this.field, [prefix.length, ...prefix], rule);
      start = start * layer.shape[place] + token;
    });
    return layer.data.slice(start * width, (start + 1) * width);
  }
}
