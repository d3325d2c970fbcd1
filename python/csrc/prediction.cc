// Predictions of a store's models.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hps/prediction_model.h"
#include "nanobind/nanobind.h"
#include "nanobind/stl/string.h"
#include "nanobind/stl/unique_ptr.h"
#include "nanobind/stl/vector.h"
#include "python/csrc/arrays.h"
#include "python/csrc/bindings.h"
#include "python/csrc/errors.h"
#include "python/csrc/gil.h"

namespace hps::python {
namespace {

namespace nb = nanobind;

// Keeps its store open.
struct StoreModel {
  StoreModel(std::shared_ptr<Store> of, std::unique_ptr<PredictionModel> opened)
      : store(std::move(of)), model(std::move(opened)) {}

  const std::shared_ptr<Store> store;  // ends after the model
  const std::unique_ptr<PredictionModel> model;
};

struct OpenModel {
  explicit OpenModel(std::unique_ptr<StoreModel> model) : handle(std::move(model), "model") {}

  Handle<StoreModel> handle;
};

std::unique_ptr<OpenModel> Open(const OpenStore& open, const std::string& name) {
  std::shared_ptr<Store> store = open.handle.Use();
  absl::StatusOr<std::unique_ptr<PredictionModel>> model;
  {
    const ReleasedGil released;
    model = PredictionModel::Open(*store, name, open.config);
  }
  return std::make_unique<OpenModel>(
      std::make_unique<StoreModel>(std::move(store), ValueOrRaise(std::move(model))));
}

// An array of uint8 that owns the memory of an output.
nb::object BytesOf(std::vector<std::byte> bytes) {
  auto kept = std::make_unique<std::vector<std::byte>>(std::move(bytes));
  std::vector<std::byte>* const memory = kept.get();
  nb::capsule owner(kept.release(), [](void* pointer) noexcept {
    const std::unique_ptr<std::vector<std::byte>> last(
        static_cast<std::vector<std::byte>*>(pointer));
  });
  const size_t size = memory->size();
  return nb::cast(nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>(memory->data(), {size}, owner));
}

// `inputs`: a list of (name, datatype, shape, the elements as an array of uint8). Returns a list of
// (name, datatype, shape, likewise).
nb::list Predict(const OpenModel& open, nb::list inputs, const std::vector<std::string>& outputs,
                 nb::handle timeout) {
  const std::shared_ptr<StoreModel> model = open.handle.Use();
  const size_t count = inputs.size();
  std::vector<std::pair<std::string, std::string>> texts(count);
  std::vector<Array> arrays(count);
  std::vector<ModelInput> read(count);
  for (size_t i = 0; i < count; ++i) {
    const nb::handle input = inputs[i];
    texts[i] = {nb::cast<std::string>(input[0]), nb::cast<std::string>(input[1])};
    arrays[i] = ReadArray(input[3], {texts[i].first.c_str()}, false);
    read[i] = {.name = texts[i].first,
               .datatype = texts[i].second,
               .shape = nb::cast<std::vector<int64_t>>(input[2]),
               .bytes = {static_cast<const std::byte*>(arrays[i].data), arrays[i].size}};
  }
  const std::vector<std::string_view> names(outputs.begin(), outputs.end());
  PredictRequest request{.inputs = read, .outputs = names};
  if (!timeout.is_none()) request.timeout = Seconds(nb::cast<double>(timeout));
  absl::StatusOr<std::vector<ModelOutput>> made;
  {
    const ReleasedGil released;
    made = model->model->Predict(request);
  }
  nb::list answer;
  for (ModelOutput& output : ValueOrRaise(std::move(made))) {
    answer.append(nb::make_tuple(output.name, output.datatype, output.shape,
                                 BytesOf(std::move(output.bytes))));
  }
  return answer;
}

}  // namespace

void BindPrediction(nb::module_& module) {
  nb::class_<OpenModel>(module, "Model")
      .def("close", [](OpenModel& open) { open.handle.Close(); })
      .def("predict", Predict, nb::arg("inputs"), nb::arg("outputs"), nb::arg("timeout").none());
  module.def("model", Open, nb::arg("store"), nb::arg("name"));
}

}  // namespace hps::python
