// The encoding of values: arrays become { dtype, shape, data } with plain numbers in data, everything else stays as JSON
// has it. "poison" stands for NaN, "inf" and "-inf" for the infinities, "3/7" for a rational.

const SPECIAL = { poison: NaN, inf: Infinity, "-inf": -Infinity };
const SPELLED = new Set(["proposal", "type", "form", "convention", "dtype"]); // fields that hold texts

function number(entry) {
  if (typeof entry !== "string") return entry;
  if (entry in SPECIAL) return SPECIAL[entry];
  const [above, below = 1] = entry.split("/").map(Number);
  return above / below;
}

export function isArray(value) {
  return value !== null && typeof value === "object" && "dtype" in value;
}

export function decode(value, name = "") {
  if (Array.isArray(value)) return value.map((entry) => decode(entry));
  if (typeof value === "string") return SPELLED.has(name) ? value : number(value);
  if (value === null || typeof value !== "object") return value;
  if (isArray(value)) return { ...value, data: value.data.map(number) };
  return Object.fromEntries(Object.entries(value).map(([key, entry]) => [key, decode(entry, key)]));
}

function spelled(entry) {
  if (typeof entry !== "number" || Number.isFinite(entry)) return entry;
  return Number.isNaN(entry) ? "poison" : entry > 0 ? "inf" : "-inf";
}

export function array(dtype, shape, data) {
  return { dtype, shape, data: dtype === "float64" ? data.map(spelled) : data };
}

export const ids = (data) => array("int64", [data.length], data);
export const floats = (data) => array("float64", [data.length], data);
