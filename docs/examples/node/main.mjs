// Draft trees and exact verification in JavaScript, judged over JSON lines: each line of stdin is a message, each line of
// stdout an answer. Start it through the suite:
//   python -m pytest --pyargs conformance --impl=adapters.process --process "node docs/examples/node/main.mjs"

import { decode } from "./encoding.mjs";
import { BadInput } from "./reading.mjs";
import { propose, verifyGreedy, verifyRandom, verifySampled } from "./acceptance.mjs";
import { draftTree, flattenTree, growTree, selectNodes, treeMask, treeVisibility } from "./tree.mjs";
import { warp } from "./warping.mjs";

const OPERATIONS = {
  grow_tree: (input) => growTree(input.case),
  select_nodes: (input) => selectNodes(input.case),
  flatten_tree: (input) => flattenTree(input.cases),
  tree_visibility: (input) => treeVisibility(input.parent),
  tree_mask: (input) => treeMask(input.cases),
  draft_tree: (input) => draftTree(input.cases),
  warp: (input) => warp(input.case),
  verify_greedy: (input) => verifyGreedy(input.cases),
  verify_sampled: (input) => verifySampled(input.cases, input.coins),
  verify_random: (input) => verifyRandom(input.cases, input.seed),
  propose: (input) => propose(input.case),
};

const DECLARATION = {
  name: "Node example",
  version: "1.0",
  operations: Object.keys(OPERATIONS),
  conventions: {
    coin_scheme: "per_node",
    frontier_coin: "inverse_cdf",
    accept_operator: "<",
    filter_order: "temperature,top_k,top_p,min_p",
    top_k_ties: "exact",
  },
  dtype: "float64",
  promises: ["seed"],
  cost: Object.fromEntries(Object.keys(OPERATIONS).map((name) => [name, 3e-4])),
};

function answer(message) {
  if (message.start) return { value: DECLARATION };
  try {
    return { value: OPERATIONS[message.operation](decode(message.input)) };
  } catch (error) {
    if (error instanceof BadInput) return { error: { kind: "bad_input", ...error.place, message: error.message } };
    return { error: { kind: "failure", message: `${error.name}: ${error.message}` } };
  }
}

let held = [];
process.stdin.setEncoding("utf8");
process.stdin.on("data", (chunk) => {
  const lines = chunk.split("\n");
  while (lines.length > 1) {
    const message = JSON.parse(held.join("") + lines.shift());
    held = [];
    if (message.stop) return process.stdin.destroy();
    process.stdout.write(JSON.stringify({ id: message.id, ...answer(message) }) + "\n");
  }
  held.push(lines[0]);
});
