"""Publications with one fault each: rows of KV and of features."""

from __future__ import annotations

from adapters.faulty.publishing import Publisher, Round

# ---- KV


class LastRowOverTheFirst(Publisher):
    """Writes the last row of the round where the first row of the prompt is (vllm-project/vllm#32628)."""

    refutes = "PUBLISH-301"

    @classmethod
    def kv(cls, found: Round, nodes: list[int]) -> list[float]:
        kv = super().kv(found, nodes)
        return [kv[-1], *kv[1:]]


class OneRowTooEarly(Publisher):
    """Starts to write at the row of the last token that has one."""

    refutes = "PUBLISH-301"

    @classmethod
    def kv(cls, found: Round, nodes: list[int]) -> list[float]:
        kv, held = super().kv(found, nodes), len(found.case.state.kv)
        return [*kv[: max(held - 1, 0)], *kv[held:], *kv[-1:]]


class RootKeepsNoRow(Publisher):
    """Keeps the rows of the path, and not that of the root."""

    refutes = "PUBLISH-302"

    @classmethod
    def kv_rows(cls, found: Round, nodes: list[int]) -> list[int]:
        return [found.nodes.index(node) for node in nodes]


class LastRowFirst(Publisher):
    """Writes the rows of the path from its end."""

    refutes = "PUBLISH-302"

    @classmethod
    def kv_rows(cls, found: Round, nodes: list[int]) -> list[int]:
        rows = super().kv_rows(found, nodes)
        return rows[:1] + rows[:0:-1]


class AsManyRows(Publisher):
    """Cuts the rows of a tree at the accepted length, as those of a chain (NVIDIA/TensorRT-LLM#10343)."""

    refutes = "PUBLISH-303"

    @classmethod
    def kv_rows(cls, found: Round, nodes: list[int]) -> list[int]:
        drafted = [row for row, node in enumerate(found.nodes) if node >= 0]
        return [*super().kv_rows(found, []), *drafted[: len(nodes)]]


class RowOfTheToken(Publisher):
    """Looks a row up by the token it holds."""

    refutes = "PUBLISH-304"

    @classmethod
    def kv_rows(cls, found: Round, nodes: list[int]) -> list[int]:
        root = super().kv_rows(found, [])
        return root + [found.tokens.index(found.tokens[found.nodes.index(node)]) for node in nodes]


class MovesInPlace(Publisher):
    """Moves row after row to the front, over rows that are still to be moved."""

    refutes = "PUBLISH-305"

    @classmethod
    def kv(cls, found: Round, nodes: list[int]) -> list[float]:
        rows, buffer = cls.kv_rows(found, nodes), list(found.kv)
        for place, row in enumerate(rows):
            buffer[place] = buffer[row]
        return [*found.case.state.kv.tolist(), *buffer[: len(rows)]]


class KVRowIsTheNode(Publisher):
    """Takes node i for the row behind the root's and i others."""

    refutes = "PUBLISH-305"

    @classmethod
    def kv_rows(cls, found: Round, nodes: list[int]) -> list[int]:
        last = len(found.nodes) - 1
        return [*super().kv_rows(found, []), *(min(node + found.rooted, last) for node in nodes)]


class FirstRowIsTheRoot(Publisher):
    """Keeps a row before those of the path also where no root was verified."""

    refutes = "PUBLISH-306"

    @classmethod
    def kv_rows(cls, found: Round, nodes: list[int]) -> list[int]:
        rows = super().kv_rows(found, nodes)
        return rows if found.rooted or not found.nodes else [0, *rows]


class RowForTheFrontier(Publisher):
    """Counts the frontier among the rows that are there (ggml-org/llama.cpp#26478)."""

    refutes = "PUBLISH-307"

    @classmethod
    def kv(cls, found: Round, nodes: list[int]) -> list[float]:
        kv = super().kv(found, nodes)
        return [*kv, kv[-1]]


# ---- features


class RootKeepsNoFeature(Publisher):
    """Keeps the features of the path, and not that of the root."""

    refutes = "PUBLISH-401"

    @classmethod
    def feature_rows(cls, found: Round, nodes: list[int]) -> list[int]:
        return [found.nodes.index(node) for node in nodes] or super().feature_rows(found, nodes)


class FeaturesFromTheEnd(Publisher):
    """Puts the features of the round before the earlier ones."""

    refutes = "PUBLISH-401"

    @classmethod
    def features(cls, found: Round, nodes: list[int]) -> list[float]:
        features, held = super().features(found, nodes), len(found.case.state.features)
        return features[held:] + features[:held]


class AsManyFeatures(Publisher):
    """Takes as many features behind the root's as were accepted (vllm-project/vllm#7508)."""

    refutes = "PUBLISH-402"

    @classmethod
    def feature_rows(cls, found: Round, nodes: list[int]) -> list[int]:
        drafted = [row for row, node in enumerate(found.nodes) if node >= 0]
        return [*super().feature_rows(found, []), *drafted[: len(nodes)]]


class FeatureOfTheToken(Publisher):
    """Looks a feature up by the token of its row."""

    refutes = "PUBLISH-402"

    @classmethod
    def feature_rows(cls, found: Round, nodes: list[int]) -> list[int]:
        root = super().feature_rows(found, [])
        return root + [found.tokens.index(found.tokens[found.nodes.index(node)]) for node in nodes]


class FeatureRowIsTheNode(Publisher):
    """Takes node i for the row behind the root's and i others."""

    refutes = "PUBLISH-403"

    @classmethod
    def feature_rows(cls, found: Round, nodes: list[int]) -> list[int]:
        last = len(found.nodes) - 1
        return [*super().feature_rows(found, []), *(min(node + found.rooted, last) for node in nodes)]


class FirstFeatureIsTheRoots(Publisher):
    """Keeps a feature before those of the path also where no root was verified."""

    refutes = "PUBLISH-403"

    @classmethod
    def feature_rows(cls, found: Round, nodes: list[int]) -> list[int]:
        rows = super().feature_rows(found, nodes)
        return rows if found.rooted or not found.nodes else [0, *rows]
