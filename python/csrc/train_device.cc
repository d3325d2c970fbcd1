// hps._hps.train.TableSet and TableStep: steps over tables of a device, for hps.train. They queue
// their work in a stream of the caller; all that may wait for it release the GIL.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nanobind/nanobind.h"
#include "python/csrc/bindings.h"
#include "python/csrc/errors.h"
#include "python/csrc/gil.h"
#include "python/csrc/train_batch.h"
#include "python/csrc/train_options.h"
#include "train/table_set.h"

namespace hps::python {
namespace {

namespace nb = nanobind;

// A step with what RowsAt asks of its features.
class BoundStep {
 public:
  BoundStep(TableSet& set, const std::vector<size_t>& tables, std::vector<SetFeature> features)
      : features_(std::move(features)), step_(set.NewStep(tables, features_)) {
    for (const SetFeature& feature : features_)
      dims_.push_back(set.rows(tables.at(feature.table)).options().dim);
  }

  TableStep& step() { return *step_; }
  std::span<const SetFeature> features() const { return features_; }
  size_t dim(size_t feature) const { return dims_[feature]; }

 private:
  const std::vector<SetFeature> features_;
  const std::unique_ptr<TableStep> step_;
  std::vector<size_t> dims_;
};

std::unique_ptr<TableSet> MakeTableSet(int device, const nb::list& tables) {
  std::vector<ShardOptions> options;
  for (const nb::handle table : tables) options.push_back(OptionsOf(nb::cast<nb::dict>(table)));
  absl::StatusOr<std::unique_ptr<TableSet>> set;
  {
    const ReleasedGil release;
    set = MakeDeviceTableSet(device, options);
  }
  return ValueOrRaise(std::move(set));
}

uint64_t SkippedUpdates(TableSet& set) {
  absl::StatusOr<uint64_t> count;
  {
    const ReleasedGil release;
    count = set.SkippedUpdates();
  }
  return ValueOrRaise(std::move(count));
}

BoundStep* MakeStep(TableSet& set, const std::vector<size_t>& tables,
                    const std::vector<Feature>& features) {
  return std::make_unique<BoundStep>(set, tables, FeaturesOf(features)).release();
}

// Where a step works: (address of its memory, bytes, stream).
using StepMemory = std::tuple<uintptr_t, size_t, uintptr_t>;

std::span<std::byte> MemoryOf(const StepMemory& place) {
  return {reinterpret_cast<std::byte*>(std::get<0>(place)), std::get<1>(place)};
}

DeviceStream StreamOf(const StepMemory& place) {
  return {reinterpret_cast<void*>(std::get<2>(place))};
}

size_t ForwardBytes(BoundStep& step, Batch batch, int mode) {
  absl::StatusOr<size_t> bytes;
  {
    const ReleasedGil release;
    bytes = step.step().PrepareBytes(BatchOf(batch, step), static_cast<StepMode>(mode));
  }
  return ValueOrRaise(std::move(bytes));
}

// Places of outputs or gradients, and the number of their Dtype.
using TypedPlaces = std::pair<Places, int>;

// Without outputs, the step gets ready to be updated, and looks nothing up.
void Forward(BoundStep& step, Batch batch, int mode, const TypedPlaces& outputs,
             const StepMemory& place) {
  absl::Status status;
  {
    const ReleasedGil release;
    status = step.step().Prepare(BatchOf(batch, step), static_cast<StepMode>(mode), MemoryOf(place),
                                 StreamOf(place));
    const auto dtype = static_cast<Dtype>(outputs.second);
    if (status.ok() && !outputs.first.empty()) {
      const auto rows = RowsAt<DeviceOutput, std::byte>(outputs.first, step, ElementBytes(dtype));
      status = step.step().Gather(rows, dtype, StreamOf(place));
    }
  }
  RaiseIfError(status);
}

size_t UpdateBytes(BoundStep& step) {
  const ReleasedGil release;
  return step.step().ReduceBytes();
}

// `factors`: the learning rates of the tables, and the scale of all gradients.
void Update(BoundStep& step, const TypedPlaces& gradients,
            const std::pair<std::vector<float>, float>& factors, uintptr_t verdict,
            const StepMemory& place) {
  const auto& [learning_rates, scale] = factors;
  const std::vector<UpdateFactors> of_tables = FactorsOf(learning_rates, scale);
  absl::Status status;
  {
    const ReleasedGil release;
    const auto dtype = static_cast<Dtype>(gradients.second);
    const auto rows =
        RowsAt<DeviceGradient, const std::byte>(gradients.first, step, ElementBytes(dtype));
    status = step.step().Reduce({.features = rows, .dtype = dtype}, scale, MemoryOf(place),
                                StreamOf(place));
    if (status.ok()) {
      status = step.step().Apply(of_tables, reinterpret_cast<float*>(verdict), StreamOf(place));
    }
  }
  RaiseIfError(status);
}

}  // namespace

void BindTrainDevice(nb::module_& m) {
  m.def("make_table_set", &MakeTableSet, nb::arg("device"), nb::arg("tables"));
  nb::class_<TableSet>(m, "TableSet")
      .def("shard", &TableSet::rows, nb::rv_policy::reference_internal)
      .def("skipped_updates", &SkippedUpdates);
  m.attr("EVALUATE") = static_cast<int>(StepMode::kEvaluate);
  m.attr("TRAIN") = static_cast<int>(StepMode::kTrain);
  m.attr("ORDER") = static_cast<int>(StepMode::kOrder);
  nb::class_<BoundStep>(m, "TableStep")
      .def_static("make", &MakeStep, nb::rv_policy::take_ownership, nb::keep_alive<0, 1>())
      .def("forward_bytes", &ForwardBytes)
      .def("forward", &Forward)
      .def("update_bytes", &UpdateBytes)
      .def("update", &Update);
}

}  // namespace hps::python
