// The operator HpsLookup of hps.tensorflow, on TensorFlow's C interface: keys of one or several
// tables in, their rows out. A library of its own, _tensorflow_operator.so, which
// tf.load_op_library loads; see operator_api.h.
#include <array>
#include <atomic>
#include <charconv>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "python/csrc/operator_api.h"
#include "python/csrc/tensorflow_abi.h"

namespace hps::python {
namespace {

constexpr const char* kOperator = "HpsLookup";
constexpr size_t kMessageBytes = 1024;
constexpr int kInvalidArgument = 3;  // codes of an absl::Status, which are also TensorFlow's
constexpr int kFailedPrecondition = 9;

// The extension's function; null until it is connected.
std::atomic<OperatorFunction*>& Extension() {
  static std::atomic<OperatorFunction*> function = nullptr;
  return function;
}

struct DeleteStatus {
  void operator()(TF_Status* status) const { TF_DeleteStatus(status); }
};
using Status = std::unique_ptr<TF_Status, DeleteStatus>;
struct DeleteTensor {
  void operator()(TF_Tensor* tensor) const { TF_DeleteTensor(tensor); }
};
using Tensor = std::unique_ptr<TF_Tensor, DeleteTensor>;

Status NewStatus() { return Status(TF_NewStatus()); }

// A node of a graph.
struct Node {
  std::string source;
  std::string tables;
  std::vector<int64_t> dims;
};

std::string ReadAttribute(TF_OpKernelConstruction* construction, const char* name,
                          TF_Status* status) {
  int32_t list_size = 0;
  int32_t bytes = 0;
  TF_OpKernelConstruction_GetAttrSize(construction, name, &list_size, &bytes, status);
  if (TF_GetCode(status) != TF_OK) return {};
  std::string value(static_cast<size_t>(bytes), '\0');
  TF_OpKernelConstruction_GetAttrString(construction, name, value.data(), value.size(), status);
  return value;
}

// The dims of "model/table:dim" lines; empty if they are something else.
std::vector<int64_t> DimsOf(std::string_view tables) {
  std::vector<int64_t> dims;
  while (true) {
    const size_t end = tables.find('\n');
    const std::string_view line = tables.substr(0, end);
    const std::string_view digits = line.substr(line.rfind(':') + 1);
    int64_t dim = 0;
    if (std::from_chars(digits.data(), digits.data() + digits.size(), dim).ec != std::errc{} ||
        dim <= 0 || dim > kOperatorDimMax)
      return {};
    dims.push_back(dim);
    if (end == std::string_view::npos) return dims;
    tables.remove_prefix(end + 1);
  }
}

void* NewNode(TF_OpKernelConstruction* construction) {
  const Status status = NewStatus();
  auto node = std::make_unique<Node>();
  node->source = ReadAttribute(construction, "source", status.get());
  if (TF_GetCode(status.get()) == TF_OK)
    node->tables = ReadAttribute(construction, "tables", status.get());
  if (TF_GetCode(status.get()) == TF_OK) {
    node->dims = DimsOf(node->tables);
    if (node->dims.empty())
      TF_SetStatus(status.get(), kInvalidArgument, "tables: expected lines of 'model/table:dim'");
  }
  if (TF_GetCode(status.get()) == TF_OK) return node.release();
  TF_OpKernelConstruction_Failure(construction, status.get());
  return nullptr;
}

void DeleteNode(void* node) { const std::unique_ptr<Node> ended(static_cast<Node*>(node)); }

// The keys and rows of one call, and what owns their memory.
struct Arrays {
  std::vector<Tensor> tensors;
  std::vector<const void*> keys;
  std::vector<size_t> key_counts;
  std::vector<float*> rows;
};

// Reads the keys of table `index` and makes room for its rows.
void AddTable(TF_OpKernelContext* context, int index, int64_t dim, Arrays& arrays,
              TF_Status* status) {
  TF_Tensor* input = nullptr;
  TF_GetInput(context, index, &input, status);
  if (TF_GetCode(status) != TF_OK) return;
  const Tensor& keys = arrays.tensors.emplace_back(input);
  std::vector<int64_t> sizes;
  for (int i = 0; i < TF_NumDims(keys.get()); ++i) sizes.push_back(TF_Dim(keys.get(), i));
  sizes.push_back(dim);
  const auto count = static_cast<size_t>(TF_TensorElementCount(keys.get()));
  arrays.keys.push_back(TF_TensorData(keys.get()));
  arrays.key_counts.push_back(count);
  TF_Tensor* output =
      TF_AllocateOutput(context, index, TF_FLOAT, sizes.data(), static_cast<int>(sizes.size()),
                        count * static_cast<size_t>(dim) * sizeof(float), status);
  if (TF_GetCode(status) != TF_OK) return;
  const Tensor& rows = arrays.tensors.emplace_back(output);
  arrays.rows.push_back(static_cast<float*>(TF_TensorData(rows.get())));
}

void Answer(const Node& node, TF_OpKernelContext* context, TF_Status* status) {
  OperatorFunction* const extension = Extension().load(std::memory_order_acquire);
  if (extension == nullptr) {
    TF_SetStatus(status, kFailedPrecondition, "import hps.tensorflow before the model is called");
    return;
  }
  const auto count = static_cast<size_t>(TF_NumInputs(context));
  if (count != node.dims.size()) {
    TF_SetStatus(status, kInvalidArgument, "keys: expected a tensor for each table");
    return;
  }
  Arrays arrays;
  arrays.tensors.reserve(2 * count);
  for (size_t i = 0; i < count; ++i) {
    AddTable(context, static_cast<int>(i), node.dims[i], arrays, status);
    if (TF_GetCode(status) != TF_OK) return;
  }
  const OperatorCall call{.source = node.source.c_str(),
                          .tables = node.tables.c_str(),
                          .table_count = count,
                          .keys = arrays.keys.data(),
                          .key_counts = arrays.key_counts.data(),
                          .keys_are_narrow = TF_InputDatatype(context, 0) == TF_INT32,
                          .rows = arrays.rows.data()};
  std::array<char, kMessageBytes> message{};
  const int code = extension(call, message.data(), message.size());
  if (code != 0) TF_SetStatus(status, code, message.data());
}

void Compute(void* node, TF_OpKernelContext* context) {
  const Status status = NewStatus();
  Answer(*static_cast<const Node*>(node), context, status.get());
  if (TF_GetCode(status.get()) != TF_OK) TF_OpKernelContext_Failure(context, status.get());
}

// The dims of rows are in an attribute, which this interface does not show: hps.tensorflow sets
// their shapes.
void InferShapes(TF_ShapeInferenceContext* context, TF_Status* status) {
  TF_ShapeInferenceContextSetUnknownShape(context, status);
}

// TensorFlow asks for the operator while it loads the library. Stateful: rows may change between
// two calls with the same keys.
const bool kRegistered = [] {
  const Status status = NewStatus();
  TF_OpDefinitionBuilder* const builder = TF_NewOpDefinitionBuilder(kOperator);
  TF_OpDefinitionBuilderAddAttr(builder, "N: int >= 1");
  TF_OpDefinitionBuilderAddAttr(builder, "T: {int32, int64}");
  TF_OpDefinitionBuilderAddAttr(builder, "source: string");
  TF_OpDefinitionBuilderAddAttr(builder, "tables: string");
  TF_OpDefinitionBuilderAddInput(builder, "keys: N * T");
  TF_OpDefinitionBuilderAddOutput(builder, "rows: N * float");
  TF_OpDefinitionBuilderSetIsStateful(builder, true);
  TF_OpDefinitionBuilderSetShapeInferenceFunction(builder, InferShapes);
  TF_RegisterOpDefinition(builder, status.get());
  if (TF_GetCode(status.get()) != TF_OK) return false;
  TF_RegisterKernelBuilder(
      kOperator, TF_NewKernelBuilder(kOperator, "CPU", NewNode, Compute, DeleteNode), status.get());
  return TF_GetCode(status.get()) == TF_OK;
}();

}  // namespace
}  // namespace hps::python

extern "C" __attribute__((visibility("default"))) void hps_tensorflow_connect(
    hps::python::OperatorFunction* extension) {
  hps::python::Extension().store(extension, std::memory_order_release);
}
