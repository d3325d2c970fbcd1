// Dense networks on the CPU by OpenVINO. The one source that sees its headers.
#include "network/cpu/openvino_network.h"

#include <openvino/op/constant.hpp>
#include <openvino/openvino.hpp>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <iterator>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "base/public_message.h"
#include "network/cpu/fitting_shapes.h"
#include "network/dense_network.h"

namespace hps {
namespace {

// Runs `body`; what OpenVINO throws becomes a status.
template <typename Body>
absl::Status Guarded(absl::StatusCode code, const char* what, Body body) {
  try {
    body();
    return absl::OkStatus();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat(what, ": out of memory"));
  } catch (const std::exception& error) {
    return absl::Status(code, absl::StrCat(what, ": ", error.what()));
  }
}

ov::element::Type TypeOf(OnnxElement element) {
  using enum OnnxElement;
  using ElementType = std::pair<OnnxElement, ov::element::Type>;
  static const ElementType kTypes[] = {
      {kFloat32, ov::element::f32}, {kUint8, ov::element::u8},    {kInt8, ov::element::i8},
      {kInt32, ov::element::i32},   {kInt64, ov::element::i64},   {kBool, ov::element::boolean},
      {kFloat16, ov::element::f16}, {kFloat64, ov::element::f64}, {kBfloat16, ov::element::bf16}};
  const auto* const found = std::ranges::find(kTypes, element, &ElementType::first);
  HPS_CHECK(found != std::end(kTypes));
  return found->second;
}

constexpr int kShapesKept = 16;

ov::Shape ShapeOf(std::span<const int64_t> dims) { return ov::Shape(dims.begin(), dims.end()); }

// The largest tensor inside a network, and all of them together (their memory is used again, so a
// run takes much less), of one run.
constexpr uint64_t kTensorBytesMax = uint64_t{1} << 30;
constexpr uint64_t kTensorsBytesMax = uint64_t{16} << 30;

absl::Status OtherShape(const OnnxValue& output) {
  return absl::InvalidArgumentError(
      absl::StrCat("the dense network does not take inputs of these shapes: its output '",
                   output.name, "' has another shape than its file says"));
}

// What the tensors inside a network take, by the dimensions of its inputs. A network may make a
// tensor of batch x batch elements, or of the square of a number of keys: a small request could
// then ask for any amount of memory.
//
// Thread-safe.
class TensorSizes {
 public:
  // Batches of at most `batch_max` are measured now, where nothing but the batch is free.
  TensorSizes(std::shared_ptr<ov::Model> model, std::span<const OnnxValue> outputs,
              uint64_t batch_max)
      : model_(std::move(model)),
        outputs_(outputs),
        shapes_(FreeDims(), [this](const FittingShapes::Dims& dims) {
          absl::Status measured;
          const absl::Status sized =
              Guarded(absl::StatusCode::kInvalidArgument,
                      "the dense network does not take inputs of these shapes",
                      [&] { measured = Measure(dims); });
          return sized.ok() ? measured : sized;
        }) {
    FittingShapes::Dims largest;
    for (const auto& input : model_->inputs()) {
      const ov::PartialShape shape = input.get_partial_shape();
      for (size_t d = 0; d < static_cast<size_t>(shape.rank().get_length()); ++d) {
        if (shape[d].is_dynamic() && d > 0) return;
        largest.push_back(shape[d].is_dynamic() ? static_cast<int64_t>(batch_max)
                                                : shape[d].get_length());
      }
    }
    shapes_.Check(largest).IgnoreError();  // smaller batches may fit
  }

  // Errors: OUT_OF_RANGE, which names the node; INVALID_ARGUMENT (the network does not take inputs
  // of these shapes).
  absl::Status Check(std::span<const DenseTensor> inputs) {
    FittingShapes::Dims dims;
    for (const DenseTensor& input : inputs)
      dims.insert(dims.end(), input.dims.begin(), input.dims.end());
    return shapes_.Check(dims);
  }

 private:
  // Only the batch: a network that takes three keys for each sample may not take two, and the
  // engine does not find that out in each case.
  std::vector<bool> FreeDims() const {
    std::vector<bool> is_free;
    for (const auto& input : model_->inputs()) {
      const ov::PartialShape shape = input.get_partial_shape();
      for (size_t d = 0; d < shape.size(); ++d) is_free.push_back(d == 0 && shape[d].is_dynamic());
    }
    return is_free;
  }

  absl::Status Measure(const FittingShapes::Dims& dims) const {
    const std::shared_ptr<ov::Model> sized = model_->clone();
    std::map<ov::Output<ov::Node>, ov::PartialShape> shapes;
    size_t at = 0;
    for (const auto& input : sized->inputs()) {
      ov::PartialShape shape = input.get_partial_shape();
      for (ov::Dimension& dim : shape) dim = dims[at++];
      shapes.emplace(input, std::move(shape));
    }
    sized->reshape(shapes);
    for (const OnnxValue& output : outputs_) {
      ov::PartialShape expected(std::vector<ov::Dimension>(output.dims.begin(), output.dims.end()));
      expected[0] = dims.front();  // the batch
      if (!sized->output(output.name).get_partial_shape().compatible(expected))
        return OtherShape(output);
    }
    uint64_t total = 0;
    for (const std::shared_ptr<ov::Node>& node : sized->get_ordered_ops()) {
      if (ov::is_type<ov::op::v0::Constant>(node)) continue;
      for (const auto& output : node->outputs()) {
        const uint64_t bytes = BytesOf(output);
        total += bytes;
        if (bytes <= kTensorBytesMax && total <= kTensorsBytesMax) continue;
        return Public(absl::OutOfRangeError(absl::StrCat(
            "the dense network would take too much memory for inputs of these shapes: at node '",
            node->get_friendly_name(), "' (", node->get_type_name(), ") a tensor has over ",
            bytes > kTensorBytesMax ? kTensorBytesMax : kTensorsBytesMax, " bytes",
            bytes > kTensorBytesMax ? "" : " with those before it")));
      }
    }
    return absl::OkStatus();
  }

  // A little over the limit where it is more; 0 where nobody can know it before the run.
  static uint64_t BytesOf(const ov::Output<ov::Node>& output) {
    if (output.get_partial_shape().is_dynamic()) return 0;
    uint64_t bytes = std::max<uint64_t>(output.get_element_type().size(), 1);
    bool is_empty = false;
    for (const size_t dim : output.get_shape()) {
      is_empty |= dim == 0;
      bytes =
          dim > kTensorBytesMax / bytes ? kTensorBytesMax + 1 : bytes * std::max<size_t>(dim, 1);
      if (bytes > kTensorBytesMax) bytes = kTensorBytesMax + 1;
    }
    return is_empty ? 0 : bytes;
  }

  const std::shared_ptr<ov::Model> model_;
  const std::span<const OnnxValue> outputs_;
  FittingShapes shapes_;
};

class OpenvinoSession final : public DenseSession {
 public:
  OpenvinoSession(ov::InferRequest request, TensorSizes& sizes,
                  const std::vector<OnnxValue>& inputs, const std::vector<OnnxValue>& outputs)
      : request_(std::move(request)), sizes_(sizes), inputs_(inputs), outputs_(outputs) {}

  absl::Status Run(std::span<const DenseTensor> inputs,
                   std::span<const DenseTensor> outputs) override {
    HPS_CHECK(inputs.size() == inputs_.size() && outputs.size() == outputs_.size());
    HPS_RETURN_IF_ERROR(sizes_.Check(inputs));
    HPS_RETURN_IF_ERROR(Infer(inputs, outputs));
    return CheckOutputs(outputs);
  }

 private:
  absl::Status Infer(std::span<const DenseTensor> inputs, std::span<const DenseTensor> outputs) {
    return Guarded(absl::StatusCode::kInternal, "the dense network failed", [&] {
      for (size_t i = 0; i < inputs.size(); ++i) {
        request_.set_tensor(inputs_[i].name, ov::Tensor(TypeOf(inputs_[i].element),
                                                        ShapeOf(inputs[i].dims), inputs[i].data));
      }
      for (size_t i = 0; i < outputs.size(); ++i) {
        request_.set_tensor(outputs_[i].name, ov::Tensor(ov::element::f32, ShapeOf(outputs[i].dims),
                                                         outputs[i].data));
      }
      request_.infer();
    });
  }

  // OpenVINO accepts an output whose memory is larger than the result, and leaves the rest of it as
  // it was.
  absl::Status CheckOutputs(std::span<const DenseTensor> outputs) {
    absl::Status checked;
    HPS_RETURN_IF_ERROR(Guarded(absl::StatusCode::kInternal, "the dense network failed", [&] {
      for (size_t i = 0; i < outputs.size() && checked.ok(); ++i) {
        const ov::Tensor made = request_.get_tensor(outputs_[i].name);
        if (made.get_shape() == ShapeOf(outputs[i].dims) && made.data() == outputs[i].data)
          continue;
        checked = OtherShape(outputs_[i]);
      }
    }));
    return checked;
  }

  ov::InferRequest request_;
  TensorSizes& sizes_;
  const std::vector<OnnxValue>& inputs_;
  const std::vector<OnnxValue>& outputs_;
};

class OpenvinoNetwork final : public DenseNetwork {
 public:
  OpenvinoNetwork(const OnnxGraph& graph, ov::Core core, ov::CompiledModel model,
                  std::shared_ptr<ov::Model> read, uint64_t batch_max)
      : inputs_(graph.inputs),
        outputs_(graph.outputs),
        core_(std::move(core)),
        model_(std::move(model)),
        sizes_(std::move(read), outputs_, batch_max) {
    for (OnnxValue& output : outputs_) output.element = OnnxElement::kFloat32;
  }

  std::span<const OnnxValue> inputs() const override { return inputs_; }
  std::span<const OnnxValue> outputs() const override { return outputs_; }

  absl::StatusOr<std::unique_ptr<DenseSession>> NewSession() override {
    std::unique_ptr<DenseSession> session;
    HPS_RETURN_IF_ERROR(
        Guarded(absl::StatusCode::kInternal, "no session of the dense network", [&] {
          session = std::make_unique<OpenvinoSession>(model_.create_infer_request(), sizes_,
                                                      inputs_, outputs_);
        }));
    return session;
  }

 private:
  std::vector<OnnxValue> inputs_;
  std::vector<OnnxValue> outputs_;
  ov::Core core_;
  ov::CompiledModel model_;
  TensorSizes sizes_;
};

// Outputs become float32, whatever the network makes.
std::shared_ptr<ov::Model> ReadModel(ov::Core& core, const std::string& onnx) {
  const std::shared_ptr<ov::Model> model = core.read_model(onnx, ov::Tensor());
  ov::preprocess::PrePostProcessor processor(model);
  for (size_t i = 0; i < model->outputs().size(); ++i)
    processor.output(i).tensor().set_element_type(ov::element::f32);
  return processor.build();
}

}  // namespace

absl::StatusOr<std::unique_ptr<DenseNetwork>> MakeOpenvinoNetwork(const OnnxGraph& graph,
                                                                  const std::string& onnx,
                                                                  const DenseOptions& options) {
  const auto cores = static_cast<int32_t>(std::max(1U, std::thread::hardware_concurrency()));
  const int32_t streams = std::clamp(static_cast<int32_t>(options.sessions), 1, cores);
  std::unique_ptr<DenseNetwork> made;
  HPS_RETURN_IF_ERROR(
      Guarded(absl::StatusCode::kInvalidArgument, "OpenVINO does not take the dense network", [&] {
        ov::Core core;
        std::shared_ptr<ov::Model> read = ReadModel(core, onnx);
        ov::CompiledModel compiled = core.compile_model(
            read, "CPU", ov::hint::inference_precision(ov::element::f32), ov::num_streams(streams),
            ov::inference_num_threads(cores), ov::hint::enable_cpu_pinning(false),
            // What it keeps for shapes that it has met; batches are of many sizes.
            ov::AnyMap::value_type("CPU_RUNTIME_CACHE_CAPACITY", kShapesKept));
        made = std::make_unique<OpenvinoNetwork>(graph, std::move(core), std::move(compiled),
                                                 std::move(read), options.batch_max);
      }));
  return made;
}

}  // namespace hps
