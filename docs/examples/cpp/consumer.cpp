// Golden vectors in C++17 with nlohmann-json, which is headers alone (Debian: nlohmann-json3-dev).
//   c++ -std=c++17 -O1 -o consumer consumer.cpp && ./consumer FIXTURES right|wrong    exit code 0 or 1

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

using Json = nlohmann::json;
using Row = std::vector<double>;

// What this implementation does where several readings are right; cases of another one are not its own.
const std::set<std::string> CONVENTIONS = {"coin_scheme=per_node", "frontier_coin=inverse_cdf", "accept_operator=<"};

double number(const Json& value) {
    if (value == "poison") return std::numeric_limits<double>::quiet_NaN();
    if (value == "inf" || value == "-inf") return (value == "inf" ? 1 : -1) * std::numeric_limits<double>::infinity();
    return value.get<double>();
}

void require(bool holds, const std::string& rule) {
    if (!holds) throw std::invalid_argument(rule);
}

std::vector<int> parents(const Json& array) {
    auto above = array.at("data").get<std::vector<int>>();
    for (int i = 0; i < static_cast<int>(above.size()); ++i) require(-1 <= above[i] && above[i] < i, "an earlier node");
    return above;
}

Json tree_visibility(const Json& input) {
    const auto above = parents(input.at("parent"));
    const int size = static_cast<int>(above.size());
    Json seen = Json::array();
    for (int row = 0; row < size; ++row) {
        std::set<int> path;
        for (int node = row; node >= 0; node = above[node]) path.insert(node);
        for (int column = 0; column < size; ++column) seen.push_back(path.count(column) > 0);
    }
    return {{"dtype", "bool"}, {"shape", {size, size}}, {"data", seen}};
}

// A law that is read: NaN and what does not sum to one are refused.
Row law(const Json& rows, int index) {
    const int width = rows.at("shape").at(1);
    Row row;
    double total = 0;
    for (int v = 0; v < width; ++v) {
        row.push_back(number(rows.at("data").at(index * width + v)));
        require(row.back() >= 0 && row.back() <= 1 + 1e-9, "a probability lies in [0, 1]");
        total += row.back();
    }
    require(std::abs(total - 1) <= 1e-9, "a row sums to one");
    return row;
}

bool renormalise(Row& row) {
    double total = 0;
    for (double value : row) total += value;
    if (total > 0) for (double& value : row) value /= total;
    return total > 0;
}

int inverse_cdf(const Row& row, double coin) {
    double cumulative = 0;
    int last = 0;
    for (int v = 0; v < static_cast<int>(row.size()); ++v) {
        cumulative += row[v];
        if (row[v] > 0) last = v;
        if (row[v] > 0 && coin < cumulative) break;
    }
    return last;
}

// One coin a node; siblings in order, each against what the rejected ones left. The fault: a rejection leaves the row whole.
Json decide(const Json& one, const Json& coins, bool fault) {
    const auto above = parents(one.at("parent"));
    const auto token = one.at("token").at("data").get<std::vector<int>>();
    const std::string proposal = one.at("proposal");
    const int width = one.at("target_probs").at("shape").at(1);
    for (int id : token) require(0 <= id && id < width, "a draft is a token");
    std::vector<int> path;
    for (int node = -1;;) {
        std::vector<int> children;
        for (int i = 0; i < static_cast<int>(above.size()); ++i) if (above[i] == node) children.push_back(i);
        Row p = law(one.at("target_probs"), node + 1), q;
        if (!children.empty() && proposal != "point") q = law(one.at("draft_probs"), node + 1);
        const auto tested = [&](int child) {
            Row drafted = q;
            if (proposal == "point") (drafted = Row(width, 0))[token[child]] = 1;
            if (number(coins.at("accept").at("data").at(child)) * drafted[token[child]] < p[token[child]]) return true;
            Row left = p;
            for (int v = 0; v < width; ++v) left[v] = std::max(p[v] - drafted[v], 0.0);
            if (!fault && renormalise(left)) p = left;
            if (proposal == "without_replacement") q[token[child]] = 0, renormalise(q);
            return false;
        };
        const auto accepted = std::find_if(children.begin(), children.end(), tested);
        if (accepted == children.end()) {
            return {{"type", "Decision"}, {"path", path}, {"frontier", inverse_cdf(p, number(coins.at("frontier")))}};
        }
        path.push_back(node = *accepted);
    }
}

Json verify_sampled(const Json& input, bool fault) {
    Json found = Json::array();
    for (std::size_t i = 0; i < input.at("cases").size(); ++i) {
        found.push_back(decide(input.at("cases").at(i), input.at("coins").at(i), fault));
    }
    return found;
}

bool passes(const std::function<Json(const Json&)>& implementation, const Json& one) {
    const Json& expected = one.at("expected");
    const Json value = expected.value("value", Json());
    const bool choice = value.is_object() && value.value("relation", "") == "one_of";
    try {
        const Json found = implementation(one.at("input"));
        if (!choice) return expected.contains("value") && found == value;
        return std::count(value.at("answers").begin(), value.at("answers").end(), found) > 0;
    } catch (const std::invalid_argument&) {
        return choice ? value.at("refused").get<bool>() : expected.contains("refused");
    }
}

int main(int count, char** arguments) {
    if (count != 3) return std::cerr << "consumer FIXTURES right|wrong\n", 2;
    const bool fault = std::string(arguments[2]) == "wrong";
    const std::map<std::string, std::function<Json(const Json&)>> implementations = {
        {"tree/tree_visibility", tree_visibility},
        {"acceptance/verify_sampled", [fault](const Json& input) { return verify_sampled(input, fault); }}};
    int failed = 0, others = 0;
    for (const auto& [name, implementation] : implementations) {
        std::ifstream file(std::string(arguments[1]) + "/" + name + ".json");
        const Json document = Json::parse(file);
        for (const Json& one : document.at("cases")) {
            bool mine = true;
            for (const std::string flag : one.at("flags")) {
                mine = mine && (flag.find('=') == std::string::npos || CONVENTIONS.count(flag));
            }
            others += !mine;
            if (!mine || passes(implementation, one)) continue;
            ++failed;
            std::cout << name << " " << one.at("id").get<std::string>();
            for (const std::string clause : one.at("clauses")) std::cout << " " << clause;
            std::cout << ": " << one.at("description").get<std::string>() << "\n";
        }
    }
    std::cout << failed << " failed; " << others << " cases are of other conventions\n";
    return failed > 0;
}
