// Dense networks on the CPU by OpenVINO. The one source that sees its headers.
#include "dense_cpu/openvino_network.h"

#include <openvino/openvino.hpp>

#include <algorithm>
#include <exception>
#include <new>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "dense/dense_network.h"

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
  switch (element) {
    case OnnxElement::kFloat32:
      return ov::element::f32;
    case OnnxElement::kUint8:
      return ov::element::u8;
    case OnnxElement::kInt8:
      return ov::element::i8;
    case OnnxElement::kInt32:
      return ov::element::i32;
    case OnnxElement::kInt64:
      return ov::element::i64;
    case OnnxElement::kBool:
      return ov::element::boolean;
    case OnnxElement::kFloat16:
      return ov::element::f16;
    case OnnxElement::kFloat64:
      return ov::element::f64;
    case OnnxElement::kBfloat16:
      return ov::element::bf16;
  }
  return ov::element::dynamic;
}

constexpr int kShapesKept = 16;

ov::Shape ShapeOf(std::span<const int64_t> dims) { return ov::Shape(dims.begin(), dims.end()); }

class OpenvinoSession final : public DenseSession {
 public:
  OpenvinoSession(ov::InferRequest request, const std::vector<OnnxValue>& inputs,
                  const std::vector<OnnxValue>& outputs)
      : request_(std::move(request)), inputs_(inputs), outputs_(outputs) {}

  absl::Status Run(std::span<const DenseTensor> inputs,
                   std::span<const DenseTensor> outputs) override {
    HPS_CHECK(inputs.size() == inputs_.size() && outputs.size() == outputs_.size());
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
        checked = absl::InternalError(absl::StrCat("the dense network failed: its output '",
                                                   outputs_[i].name,
                                                   "' has another shape than its file says"));
      }
    }));
    return checked;
  }

  ov::InferRequest request_;
  const std::vector<OnnxValue>& inputs_;
  const std::vector<OnnxValue>& outputs_;
};

class OpenvinoNetwork final : public DenseNetwork {
 public:
  OpenvinoNetwork(const OnnxGraph& graph, ov::Core core, ov::CompiledModel model)
      : inputs_(graph.inputs),
        outputs_(graph.outputs),
        core_(std::move(core)),
        model_(std::move(model)) {
    for (OnnxValue& output : outputs_) output.element = OnnxElement::kFloat32;
  }

  std::span<const OnnxValue> inputs() const override { return inputs_; }
  std::span<const OnnxValue> outputs() const override { return outputs_; }

  absl::StatusOr<std::unique_ptr<DenseSession>> NewSession() override {
    std::unique_ptr<DenseSession> session;
    HPS_RETURN_IF_ERROR(
        Guarded(absl::StatusCode::kInternal, "no session of the dense network", [&] {
          session =
              std::make_unique<OpenvinoSession>(model_.create_infer_request(), inputs_, outputs_);
        }));
    return session;
  }

 private:
  std::vector<OnnxValue> inputs_;
  std::vector<OnnxValue> outputs_;
  ov::Core core_;
  ov::CompiledModel model_;
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
        ov::CompiledModel compiled = core.compile_model(
            ReadModel(core, onnx), "CPU", ov::hint::inference_precision(ov::element::f32),
            ov::num_streams(streams), ov::inference_num_threads(cores),
            ov::hint::enable_cpu_pinning(false),
            // What it keeps for shapes that it has met; batches are of many sizes.
            ov::AnyMap::value_type("CPU_RUNTIME_CACHE_CAPACITY", kShapesKept));
        made = std::make_unique<OpenvinoNetwork>(graph, std::move(core), std::move(compiled));
      }));
  return made;
}

}  // namespace hps
