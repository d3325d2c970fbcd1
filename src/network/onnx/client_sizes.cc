#include "network/onnx/client_sizes.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace hps {
namespace {

// An operator whose input of this number is the size of what it makes.
struct SizedOperator {
  std::string_view op;
  size_t input = 0;
  absl::string_view what;
};
constexpr SizedOperator kSizedOperators[] = {{"ConstantOfShape", 0, "shape"},
                                             {"Expand", 1, "shape"},
                                             {"OneHot", 1, "depth"},
                                             {"Pad", 1, "padding"},
                                             {"Tile", 1, "number of repetitions"}};

absl::string_view Text(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

absl::Status CheckSizesOfClients(const OnnxGraph& graph) {
  // By value: the input of the graph whose numbers it is computed from.
  std::map<std::string_view, std::string_view> sources;
  for (const OnnxValue& input : graph.inputs) sources[input.name] = input.name;
  for (const OnnxNode& node : graph.nodes) {
    for (const SizedOperator& sized : kSizedOperators) {
      if (node.op != sized.op || node.inputs.size() <= sized.input) continue;
      const auto source = sources.find(node.inputs[sized.input]);
      if (source == sources.end()) continue;
      const std::string_view name = node.name.empty() ? node.outputs.front() : node.name;
      return absl::InvalidArgumentError(
          absl::StrCat("node '", Text(name), "' (", Text(node.op), "): its ", sized.what,
                       " is computed from the numbers of input '", Text(source->second),
                       "', so a request could ask for any amount of memory: make it a constant"));
    }
    // Of these, the numbers of the input don't matter.
    if (node.op == "Shape" || node.op == "Size") continue;
    const auto from = std::find_if(node.inputs.begin(), node.inputs.end(),
                                   [&](std::string_view input) { return sources.contains(input); });
    if (from == node.inputs.end()) continue;
    for (const std::string_view output : node.outputs) sources[output] = sources[*from];
  }
  return absl::OkStatus();
}

}  // namespace hps
