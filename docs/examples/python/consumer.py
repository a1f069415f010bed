"""Golden vectors, and the standard library alone: `python consumer.py FIXTURES right|wrong`; exit code 0 or 1."""

import copy
import json
import pathlib
import sys


def right_visibility(parent):
    above = parent["data"]
    if any(not -1 <= p < i for i, p in enumerate(above)):
        raise ValueError("a parent is −1 or an earlier node")
    n, seen = len(above), []
    for i, p in enumerate(above):
        seen.append([j == i or (p >= 0 and seen[p][j]) for j in range(n)])
    return {"dtype": "bool", "shape": [n, n], "data": [entry for row in seen for entry in row]}


def wrong_visibility(parent):  # a node sees itself, and none of its ancestors
    n = len(parent["data"])
    return {"dtype": "bool", "shape": [n, n], "data": [i == j for i in range(n) for j in range(n)]}


def right_greedy(cases, first=True):
    return [greedy(case, first) for case in cases]


def greedy(case, first):
    path, node, width = [], -1, case["target_probs"]["shape"][1]
    while True:
        row = case["target_probs"]["data"][(node + 1) * width : (node + 2) * width]
        if "poison" in row or -1 in case["token"]["data"]:
            raise ValueError("a row that is read holds NaN, or a draft is none")
        best = max(range(width), key=lambda v: (row[v], -v if first else v))
        below = [i for i, p in enumerate(case["parent"]["data"]) if p == node and case["token"]["data"][i] == best]
        if not below:
            return {"type": "Decision", "path": path, "frontier": best}
        path, node = [*path, below[0]], below[0]


RIGHT = {"tree/tree_visibility": right_visibility, "acceptance/verify_greedy": right_greedy}
WRONG = {"tree/tree_visibility": wrong_visibility, "acceptance/verify_greedy": lambda cases: right_greedy(cases, False)}
failed = 0
for name, implementation in {"right": RIGHT, "wrong": WRONG}[sys.argv[2]].items():
    for case in json.loads(pathlib.Path(sys.argv[1], name + ".json").read_text(encoding="utf-8"))["cases"]:
        value = case["expected"].get("value")  # none where the input has to be refused
        ways = value if isinstance(value, dict) and value.get("relation") == "one_of" else {"answers": [value]}
        given = copy.deepcopy(case["input"])
        try:
            passed = implementation(**given) in ways["answers"] and "value" in case["expected"]
        except (ValueError, IndexError):
            passed = "refused" in case["expected"] or ways.get("refused", False)
        if not passed or given != case["input"]:
            failed += 1
            print(f"{name} {case['id']} {' '.join(case['clauses'])}: {case['description']}")
print(f"{failed} failed")
sys.exit(failed > 0)
