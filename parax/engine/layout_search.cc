#include "parax/engine/layout_search.h"

#include <algorithm>
#include <map>

namespace parax {
namespace {

// Of every live value: the layout it was made in, then those of its copies, ascending.
using State = std::map<int, std::vector<int>>;

struct Reached {
  double cost = 0;
  int before = -1;  // in the trace
};

struct Choice {
  int way = 0;
  int before = -1;
};

}  // namespace

LayoutAnswer SearchLayouts(const LayoutProblem& problem) {
  std::map<int, int> last_use;
  for (size_t n = 0; n < problem.nodes.size(); ++n) {
    for (const int value : problem.nodes[n].inputs) last_use[value] = static_cast<int>(n);
  }
  std::vector<Choice> trace;
  std::map<State, Reached> reached = {{{{0, {problem.input_layout}}}, {}}};
  for (size_t n = 0; n < problem.nodes.size(); ++n) {
    const LayoutProblem::Node& node = problem.nodes[n];
    std::map<State, Reached> next;
    for (const auto& [state, so_far] : reached) {
      std::vector<int> made;
      for (const int value : node.inputs) made.push_back(state.at(value).front());
      const std::vector<LayoutWay> ways = problem.ways(static_cast<int>(n), made);
      for (size_t w = 0; w < ways.size(); ++w) {
        State after = state;
        double cost = so_far.cost + ways[w].cost;
        for (size_t i = 0; i < node.inputs.size(); ++i) {
          std::vector<int>& held = after[node.inputs[i]];
          const int wanted = ways[w].inputs[i];
          if (std::find(held.begin(), held.end(), wanted) != held.end()) continue;
          cost += problem.reorder(node.inputs[i], held.front(), wanted);
          held.insert(std::lower_bound(held.begin() + 1, held.end(), wanted), wanted);
        }
        for (const int value : node.inputs) {
          if (last_use[value] == static_cast<int>(n)) after.erase(value);
        }
        if (last_use.contains(node.output)) after[node.output] = {ways[w].output};
        const auto [it, is_new] = next.try_emplace(std::move(after));
        if (!is_new && it->second.cost <= cost) continue;
        trace.push_back({static_cast<int>(w), so_far.before});
        it->second = {cost, static_cast<int>(trace.size()) - 1};
      }
    }
    reached = std::move(next);
  }
  const auto best =
      std::min_element(reached.begin(), reached.end(),
                       [](const auto& a, const auto& b) { return a.second.cost < b.second.cost; });
  LayoutAnswer answer{{}, best->second.cost};
  for (int at = best->second.before; at >= 0; at = trace[static_cast<size_t>(at)].before) {
    answer.ways.push_back(trace[static_cast<size_t>(at)].way);
  }
  std::reverse(answer.ways.begin(), answer.ways.end());
  return answer;
}

}  // namespace parax
