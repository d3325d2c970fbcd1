#include "network/onnx/split.h"

#include <algorithm>
#include <climits>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/macros.h"
#include "onnx/onnx-ml.pb.h"

namespace hps {
namespace {

// Operators between an input and a Gather.
constexpr int kStepsMax = 100;

absl::string_view Text(std::string_view text) { return {text.data(), text.size()}; }

std::string NodeText(const OnnxNode& node) {
  return absl::StrCat("'", Text(node.name.empty() ? node.outputs.front() : node.name), "' (",
                      Text(node.op), ")");
}

// Where the keys of a Gather come from.
struct KeySource {
  std::string_view input;  // of the graph
  size_t rank = 0;
  int64_t sample_keys = -1;  // of a sample, where the rank is 2 and their number is known
  std::string way;           // the operators on the way, for remarks
};

// Follows values back to inputs of the graph, and on to their only reader.
class GraphWalk {
 public:
  explicit GraphWalk(const OnnxGraph& graph) : graph_(graph) {
    for (const OnnxNode& node : graph_.nodes) {
      for (const std::string_view output : node.outputs) makers_[output] = &node;
      for (const std::string_view input : node.inputs) readers_[input].push_back(&node);
    }
    for (const OnnxValue& output : graph_.outputs) outputs_.insert(output.name);
  }

  // Errors: FAILED_PRECONDITION, with why it is not a part of an input.
  absl::StatusOr<KeySource> FindKeys(std::string_view value, int steps_left = kStepsMax) const {
    if (const OnnxValue* const input = graph_.Input(value)) {
      return KeySource{.input = input->name,
                       .rank = input->dims.size(),
                       .sample_keys = input->dims.size() == 2 ? input->dims[1] : -1};
    }
    if (graph_.Constant(value) != nullptr)
      return absl::FailedPreconditionError("its indices are constant");
    const auto found = makers_.find(value);
    if (found == makers_.end() || found->second->inputs.empty() || steps_left == 0)
      return absl::FailedPreconditionError("its indices come from no input");
    const OnnxNode& node = *found->second;
    HPS_ASSIGN_OR_RETURN(KeySource source, FindKeys(node.inputs.front(), steps_left - 1));
    HPS_ASSIGN_OR_RETURN(source.rank, RankAfter(node, source.rank));
    if (node.op != "Cast" && node.op != "Identity") source.sample_keys = -1;
    absl::StrAppend(&source.way, source.way.empty() ? "" : ", ", Text(node.op));
    return source;
  }

  // The only reader of a value, or null.
  const OnnxNode* OnlyReader(std::string_view value) const {
    const auto found = readers_.find(value);
    const bool is_one = found != readers_.end() && found->second.size() == 1;
    return is_one && !IsOutput(value) ? found->second.front() : nullptr;
  }

  bool IsOutput(std::string_view value) const { return outputs_.contains(value); }

  // The axes of a Squeeze, Unsqueeze or reduction, which older opsets have as an attribute.
  std::optional<std::vector<int64_t>> Axes(const OnnxNode& node) const {
    if (const auto found = node.integers.find("axes"); found != node.integers.end())
      return found->second;
    if (node.inputs.size() < 2) return std::nullopt;
    const OnnxTensor* const axes = graph_.Constant(node.inputs[1]);
    return axes == nullptr ? std::nullopt : std::optional(axes->Integers());
  }

 private:
  absl::StatusOr<size_t> RankAfter(const OnnxNode& node, size_t rank) const {
    const std::string_view op = node.op;
    const auto unknown = [&] {
      return absl::FailedPreconditionError(
          absl::StrCat("its indices are computed by ", NodeText(node)));
    };
    if (op == "Cast" || op == "Identity" || op == "Slice") return rank;
    if (op == "Split" && node.Integer("axis", 0) != 0) return rank;  // never the samples
    if (op == "Squeeze" || op == "Unsqueeze") {
      const auto axes = Axes(node);
      if (!axes.has_value() || (op == "Squeeze" && axes->size() >= rank)) return unknown();
      return op == "Squeeze" ? rank - axes->size() : rank + axes->size();
    }
    if (op == "Flatten" && rank == 2) return rank;
    if (op == "Reshape" && node.inputs.size() == 2) {
      const OnnxTensor* const shape = graph_.Constant(node.inputs[1]);
      // Fewer dimensions may mix samples: keys could not be told apart by sample then.
      if (shape == nullptr || shape->element_count() < rank) return unknown();
      return shape->element_count();
    }
    if (op == "Gather" && node.inputs.size() == 2 && graph_.Constant(node.inputs[1]) != nullptr &&
        rank > 0 && node.Integer("axis", 0) != 0) {
      return rank - 1 + graph_.Constant(node.inputs[1])->dims.size();
    }
    return unknown();
  }

  const OnnxGraph& graph_;
  std::map<std::string_view, const OnnxNode*> makers_;
  std::map<std::string_view, std::vector<const OnnxNode*>> readers_;
  std::set<std::string_view> outputs_;
};

class Splitter {
 public:
  explicit Splitter(const OnnxModel& model)
      : proto_(model.proto()), graph_(model.graph()), walk_(graph_) {
    for (const OnnxValue& input : graph_.inputs) names_.insert(input.name);
    for (const OnnxValue& output : graph_.outputs) names_.insert(output.name);
  }

  absl::StatusOr<OnnxSplit> Split() {
    for (const OnnxNode& node : graph_.nodes) {
      if (node.op == "Gather") ConsiderGather(node);
    }
    if (split_.tables.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("no embedding table was found: none is read by a Gather by an input",
                       split_.remarks.empty() ? "" : "; ", absl::StrJoin(split_.remarks, "; ")));
    }
    const ::onnx::ModelProto network = MakeNetwork();
    if (network.ByteSizeLong() > INT_MAX || !network.SerializeToString(&split_.network))
      return absl::OutOfRangeError("the network without the tables is over 2 GiB");
    split_.remarks.push_back(
        "a negative id is a key as any other, absent unless it has a row: ONNX would count it from "
        "the table's end");
    return std::move(split_);
  }

 private:
  // A value of the graph that an input of the network replaces.
  struct Replaced {
    size_t table = 0;
    size_t rank = 0;
    int64_t sample_keys = -1;  // where the rank is 3
  };

  static bool IsTable(const OnnxTensor& tensor) {
    const bool is_float = tensor.element == OnnxElement::kFloat32 ||
                          tensor.element == OnnxElement::kFloat16 ||
                          tensor.element == OnnxElement::kBfloat16;
    return is_float && tensor.dims.size() == 2 && tensor.dims[0] > 0 && tensor.dims[1] > 0 &&
           tensor.dims[1] <= INT_MAX;
  }

  void ConsiderGather(const OnnxNode& node) {
    if (node.inputs.size() != 2) return;
    const OnnxTensor* const tensor = graph_.Constant(node.inputs.front());
    if (tensor == nullptr || !IsTable(*tensor)) return;
    const std::string_view weight = node.inputs[0];
    const auto refuse = [&](absl::string_view why) {
      split_.remarks.push_back(absl::StrCat("'", Text(weight), "' stays in the network, read by ",
                                            NodeText(node), ": ", why));
    };
    if (node.Integer("axis", 0) != 0) return refuse("it reads columns");
    const absl::StatusOr<KeySource> keys = walk_.FindKeys(node.inputs[1]);
    if (!keys.ok()) return refuse(keys.status().message());
    if (keys->rank != 1 && keys->rank != 2)
      return refuse(absl::StrCat("its keys have ", keys->rank, " dimensions, not 1 or 2"));
    if (walk_.IsOutput(node.outputs.front())) return refuse("its rows are an output");
    AddTable(node, *tensor, *keys);
  }

  void AddTable(const OnnxNode& node, const OnnxTensor& tensor, const KeySource& keys) {
    const std::string_view weight = node.inputs[0];
    std::string_view value = node.outputs.front();
    RowPooling pooling = keys.rank == 1 ? RowPooling::kSum : RowPooling::kNone;
    size_t rank = keys.rank + 1;
    if (const OnnxNode* const reader = walk_.OnlyReader(value); reader != nullptr && rank == 3) {
      const std::optional<RowPooling> pooled = PoolingOf(*reader);
      if (pooled.has_value() && !walk_.IsOutput(reader->outputs.front())) {
        pooling = *pooled;
        value = reader->outputs.front();
        rank = 2;
      }
    }
    const auto known = table_by_keys_.find({weight, node.inputs[1]});
    if (known != table_by_keys_.end() && split_.tables[known->second].pooling == pooling) {
      replaced_[value] = {.table = known->second, .rank = rank, .sample_keys = keys.sample_keys};
      return;
    }
    if (!weights_.insert(weight).second) {
      split_.remarks.push_back(absl::StrCat("'", Text(weight),
                                            "' is read by several keys: it becomes a table for "
                                            "each of them"));
    }
    table_by_keys_[{weight, node.inputs[1]}] = split_.tables.size();
    replaced_[value] = {
        .table = split_.tables.size(), .rank = rank, .sample_keys = keys.sample_keys};
    OnnxSplitTable table{.name = NewName(TableName(weight)),
                         .row_count = static_cast<uint64_t>(tensor.dims[0]),
                         .dim = static_cast<uint32_t>(tensor.dims[1]),
                         .element = tensor.element,
                         .rows = tensor.bytes,
                         .pooling = pooling};
    table.network_input = NewName(table.name + "_rows");
    split_.remarks.push_back(absl::StrCat(
        "table '", table.name, "': keys are [batch", keys.rank == 2 ? ", k]" : "]", " of input '",
        Text(keys.input), "'", keys.way.empty() ? "" : " by ", keys.way));
    split_.tables.push_back(std::move(table));
  }

  std::optional<RowPooling> PoolingOf(const OnnxNode& node) const {
    if (node.op != "ReduceSum" && node.op != "ReduceMean") return std::nullopt;
    const auto axes = walk_.Axes(node);
    const bool is_bag = axes.has_value() && axes->size() == 1 &&
                        (axes->front() == 1 || axes->front() == -2) &&
                        node.Integer("keepdims", 1) == 0;
    if (!is_bag) return std::nullopt;
    return node.op == "ReduceSum" ? RowPooling::kSum : RowPooling::kMean;
  }

  static std::string TableName(std::string_view weight) {
    constexpr std::string_view kSuffix = ".weight";
    constexpr size_t kNameMax = 100;
    if (weight.ends_with(kSuffix) && weight.size() > kSuffix.size())
      weight.remove_suffix(kSuffix.size());
    std::string name(weight.substr(0, kNameMax));
    for (char& c : name) {
      const bool is_legal = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                            (c >= '0' && c <= '9') || c == '_' || c == '-';
      if (!is_legal) c = '_';
    }
    return name;
  }

  std::string NewName(const std::string& wanted) {
    std::string name = wanted;
    for (int number = 2; !names_.insert(name).second; ++number)
      name = absl::StrCat(wanted, "_", number);
    return name;
  }

  // ---- The network ----

  ::onnx::ModelProto MakeNetwork() {
    ::onnx::ModelProto network;
    network.set_ir_version(proto_.ir_version());
    *network.mutable_opset_import() = proto_.opset_import();
    network.set_producer_name("hps split-onnx");
    ::onnx::GraphProto& graph = *network.mutable_graph();
    graph.set_name(proto_.graph().name());
    const std::set<std::string_view> needed = NeededValues();
    AddInputs(needed, graph);
    for (const ::onnx::TensorProto& tensor : proto_.graph().initializer()) {
      if (needed.contains(tensor.name())) *graph.add_initializer() = tensor;
    }
    for (const ::onnx::NodeProto& node : proto_.graph().node()) {
      if (IsNeeded(node, needed)) *graph.add_node() = Renamed(node);
    }
    *graph.mutable_output() = proto_.graph().output();
    return network;
  }

  bool IsNeeded(const ::onnx::NodeProto& node, const std::set<std::string_view>& needed) const {
    return std::any_of(node.output().begin(), node.output().end(), [&](const std::string& output) {
      return needed.contains(output) && !replaced_.contains(output);
    });
  }

  // Backwards from the outputs: what makes nothing that is read goes.
  std::set<std::string_view> NeededValues() const {
    std::set<std::string_view> needed;
    for (const OnnxValue& output : graph_.outputs) needed.insert(output.name);
    const auto& nodes = proto_.graph().node();
    for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
      if (!IsNeeded(*node, needed)) continue;
      for (const std::string& input : node->input()) needed.insert(input);
    }
    return needed;
  }

  void AddInputs(const std::set<std::string_view>& needed, ::onnx::GraphProto& graph) {
    std::set<size_t> added;
    for (const auto& [value, place] : replaced_) {
      const OnnxSplitTable& table = split_.tables[place.table];
      if (!added.insert(place.table).second) continue;
      ::onnx::ValueInfoProto& info = *graph.add_input();
      info.set_name(table.network_input);
      ::onnx::TypeProto::Tensor& type = *info.mutable_type()->mutable_tensor_type();
      type.set_elem_type(::onnx::TensorProto::FLOAT);
      type.mutable_shape()->add_dim()->set_dim_param("batch");
      if (place.rank == 3 && place.sample_keys > 0) {
        type.mutable_shape()->add_dim()->set_dim_value(place.sample_keys);
      } else if (place.rank == 3) {
        type.mutable_shape()->add_dim()->set_dim_param(table.name + "_keys");
      }
      type.mutable_shape()->add_dim()->set_dim_value(table.dim);
      if (table.element != OnnxElement::kFloat32) AddCast(table, graph);
    }
    for (const ::onnx::ValueInfoProto& info : proto_.graph().input()) {
      if (graph_.Input(info.name()) == nullptr) continue;
      if (needed.contains(info.name())) {
        *graph.add_input() = info;
      } else {
        split_.remarks.push_back(
            absl::StrCat("input '", info.name(), "' is no longer one: its keys go to the tables"));
      }
    }
  }

  // Rows come as float32; the network goes on with the weight's type.
  static void AddCast(const OnnxSplitTable& table, ::onnx::GraphProto& graph) {
    ::onnx::NodeProto& cast = *graph.add_node();
    cast.set_op_type("Cast");
    cast.add_input(table.network_input);
    cast.add_output(CastName(table));
    ::onnx::AttributeProto& to = *cast.add_attribute();
    to.set_name("to");
    to.set_type(::onnx::AttributeProto::INT);
    to.set_i(static_cast<int>(table.element));
  }

  static std::string CastName(const OnnxSplitTable& table) { return table.network_input + "_cast"; }

  ::onnx::NodeProto Renamed(::onnx::NodeProto node) const {
    for (std::string& input : *node.mutable_input()) {
      const auto found = replaced_.find(input);
      if (found == replaced_.end()) continue;
      const OnnxSplitTable& table = split_.tables[found->second.table];
      input = table.element == OnnxElement::kFloat32 ? table.network_input : CastName(table);
    }
    return node;
  }

  const ::onnx::ModelProto& proto_;
  const OnnxGraph& graph_;
  const GraphWalk walk_;
  OnnxSplit split_;
  std::set<std::string, std::less<>> names_;
  std::set<std::string_view> weights_;  // that became tables
  std::map<std::pair<std::string_view, std::string_view>, size_t> table_by_keys_;
  std::map<std::string_view, Replaced> replaced_;
};

}  // namespace

Dtype OnnxSplitTable::dtype() const {
  if (element == OnnxElement::kFloat16) return Dtype::kFloat16;
  return element == OnnxElement::kBfloat16 ? Dtype::kBfloat16 : Dtype::kFloat32;
}

absl::StatusOr<OnnxSplit> SplitOnnx(const OnnxModel& model) { return Splitter(model).Split(); }

}  // namespace hps
