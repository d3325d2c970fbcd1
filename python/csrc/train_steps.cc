// hps._hps.train.RankTable and RankStep: steps over tables, of one process or of several ranks, for
// hps.train.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "nanobind/ndarray.h"
#include "nanobind/stl/optional.h"
#include "nanobind/stl/vector.h"
#include "python/csrc/bindings.h"
#include "python/csrc/errors.h"
#include "python/csrc/gil.h"
#include "python/csrc/train_arrays.h"
#include "python/csrc/train_batch.h"
#include "train/embedding_shard.h"
#include "train/gradient_bound.h"
#include "train_cpu/rank_step.h"
#include "train_cpu/shared_word.h"

namespace hps::python {
namespace {

namespace nb = nanobind;

std::vector<FeatureOutput> OutputsAt(const Places& places, const RankStep& step) {
  return RowsAt<FeatureOutput, float>(places, step, sizeof(float));
}

std::vector<FeatureGradient> GradientsAt(const Places& places, const RankStep& step) {
  return RowsAt<FeatureGradient, const float>(places, step, sizeof(float));
}

using Keys = nb::ndarray<const Key, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Addresses = std::vector<uintptr_t>;

template <typename T>
std::vector<T*> Pointers(const Addresses& addresses) {
  std::vector<T*> pointers;
  pointers.reserve(addresses.size());
  for (const uintptr_t address : addresses) pointers.push_back(reinterpret_cast<T*>(address));
  return pointers;
}

template <typename T>
std::vector<std::span<const T>> Pieces(const Addresses& from, const std::vector<size_t>& sizes) {
  std::vector<std::span<const T>> pieces;
  for (size_t rank = 0; rank < from.size(); ++rank)
    pieces.emplace_back(reinterpret_cast<const T*>(from[rank]), sizes.at(rank));
  return pieces;
}

void SetHot(RankTable& table, const Keys& keys) {
  table.hot.clear();
  table.hot.insert(keys.data(), keys.data() + keys.size());
}

RankStep* MakeStep(uint32_t rank, uint32_t rank_count, const std::vector<RankTable*>& tables,
                   const std::vector<Feature>& features) {
  return std::make_unique<RankStep>(RankPlace{.rank = rank, .rank_count = rank_count}, tables,
                                    FeaturesOf(features))
      .release();
}

void Begin(RankStep& step, Batch batch, bool is_training) {
  absl::Status status;
  {
    const ReleasedGil release;
    status = step.Begin(BatchOf(batch, step), is_training);
  }
  RaiseIfError(status);
}

// The forward of a process that is alone.
void Forward(RankStep& step, Batch batch, bool is_training, const Places& outputs) {
  absl::Status status;
  {
    const ReleasedGil release;
    status = step.Begin(BatchOf(batch, step), is_training);
    if (status.ok()) status = step.LookUp({}, OutputsAt(outputs, step));
  }
  RaiseIfError(status);
}

// The backward of a process that is alone: updates the rows, or without learning rates adds to the
// sums.
bool Backward(RankStep& step, const Places& gradients, const std::vector<float>& learning_rates,
              float scale) {
  absl::StatusOr<bool> taken(false);
  {
    const ReleasedGil release;
    std::vector<float> flags(step.Sizes(0).gradients_to);
    float* const to = flags.data();
    const absl::Status status = step.SumGradients(GradientsAt(gradients, step), scale, {&to, 1});
    const std::span<const float> from(flags);
    if (!status.ok())
      taken = status;
    else if (learning_rates.empty())
      taken = step.AddToSums({&from, 1});
    else
      taken = step.Update({&from, 1}, FactorsOf(learning_rates, scale));
  }
  RaiseIfError(taken.status());
  return *taken;
}

// (integers of the message, float32 values: rows to it, rows from it, gradients to it, from it)
nb::tuple Sizes(const RankStep& step, uint32_t rank) {
  const PieceSizes sizes = step.Sizes(rank);
  return nb::make_tuple(sizes.message, sizes.rows_to, sizes.rows_from, sizes.gradients_to,
                        sizes.gradients_from);
}

void WriteMessages(const RankStep& step, const Addresses& to) {
  const ReleasedGil release;
  for (size_t rank = 0; rank < to.size(); ++rank)
    step.WriteMessage(static_cast<uint32_t>(rank), reinterpret_cast<int64_t*>(to[rank]));
}

void ReadMessages(RankStep& step, const Addresses& from, const std::vector<size_t>& sizes) {
  const auto messages = Pieces<int64_t>(from, sizes);
  absl::Status status;
  {
    const ReleasedGil release;
    status = step.ReadMessages(messages);
  }
  RaiseIfError(status);
}

void LookUp(RankStep& step, const Addresses& to, const Places& outputs) {
  absl::Status status;
  {
    const ReleasedGil release;
    status = step.LookUp(Pointers<float>(to), OutputsAt(outputs, step));
  }
  RaiseIfError(status);
}

void Pool(RankStep& step, const Addresses& from, const std::vector<size_t>& sizes,
          const Places& outputs) {
  const auto rows = Pieces<float>(from, sizes);
  absl::Status status;
  {
    const ReleasedGil release;
    status = step.Pool(rows, OutputsAt(outputs, step));
  }
  RaiseIfError(status);
}

void SumGradients(RankStep& step, const Places& gradients, float scale, const Addresses& to) {
  absl::Status status;
  {
    const ReleasedGil release;
    status = step.SumGradients(GradientsAt(gradients, step), scale, Pointers<float>(to));
  }
  RaiseIfError(status);
}

// Without learning rates, adds to the sums.
bool Update(RankStep& step, const Addresses& from, const std::vector<size_t>& sizes,
            const std::vector<float>& learning_rates, float scale) {
  const auto sums = Pieces<float>(from, sizes);
  absl::StatusOr<bool> taken(false);
  {
    const ReleasedGil release;
    taken = learning_rates.empty() ? step.AddToSums(sums)
                                   : step.Update(sums, FactorsOf(learning_rates, scale));
  }
  RaiseIfError(taken.status());
  return *taken;
}

bool SumsAllowIn(const std::vector<RankTable*>& tables, float scale) {
  const ReleasedGil release;
  return SumsAllow(tables, scale);
}

void ApplySumsTo(const std::vector<RankTable*>& tables, const std::vector<float>& learning_rates,
                 float scale) {
  absl::Status status;
  {
    const ReleasedGil release;
    status = ApplySums(tables, FactorsOf(learning_rates, scale));
  }
  RaiseIfError(status);
}

double SquaredNormOf(const std::vector<RankTable*>& tables, uint32_t rank, uint32_t rank_count) {
  const ReleasedGil release;
  return SquaredNorm(tables, {.rank = rank, .rank_count = rank_count});
}

void ScaleSums(const std::vector<RankTable*>& tables, float factor) {
  const ReleasedGil release;
  for (RankTable* const table : tables) table->sums.Scale(factor);
}

void DropSums(const std::vector<RankTable*>& tables) {
  for (RankTable* const table : tables) table->sums.Clear();
}

SharedWord& WordAt(uintptr_t address) { return *reinterpret_cast<SharedWord*>(address); }

void RaiseSharedWord(uintptr_t address, uint32_t value) { RaiseWord(WordAt(address), value); }

bool WaitForSharedWord(uintptr_t address, uint32_t value, double seconds) {
  const std::chrono::nanoseconds longest = Seconds(seconds);
  const ReleasedGil release;
  return WaitForWord(WordAt(address), value, longest);
}

// A copy.
nb::object KeysOf(const RankStep& step, size_t table) {
  const std::span<const Key> keys = step.keys(table);
  return ToNumpy(std::vector<Key>(keys.begin(), keys.end()));
}

}  // namespace

void BindTrainSteps(nb::module_& m) {
  m.attr("SCALED_SUM_MAX") = kScaledSumMax;
  m.def("sums_allow", &SumsAllowIn);
  m.def("apply_sums", &ApplySumsTo);
  m.def("squared_norm", &SquaredNormOf);
  m.def("scale_sums", &ScaleSums);
  m.def("drop_sums", &DropSums);
  m.def("raise_word", &RaiseSharedWord);
  m.def("wait_for_word", &WaitForSharedWord);
  nb::class_<RankTable>(m, "RankTable")
      .def(
          "__init__",
          [](RankTable* table, EmbeddingShard* shard, std::optional<uint32_t> holder,
             bool is_replicated) {
            std::construct_at(
                table, RankTable{.shard = shard, .holder = holder, .is_replicated = is_replicated});
          },
          nb::arg("shard"), nb::arg("holder").none(), nb::arg("is_replicated"),
          nb::keep_alive<1, 2>())
      .def("set_hot", &SetHot)
      .def("set_holder", [](RankTable& table, uint32_t holder) { table.holder = holder; });
  nb::class_<RankStep>(m, "RankStep")
      .def_static("make", &MakeStep, nb::rv_policy::take_ownership, nb::keep_alive<0, 3>())
      .def("forward", &Forward)
      .def("backward", &Backward)
      .def("begin", &Begin)
      .def("sizes", &Sizes)
      .def("write_messages", &WriteMessages)
      .def("read_messages", &ReadMessages)
      .def("look_up", &LookUp)
      .def("pool", &Pool)
      .def("sum_gradients", &SumGradients)
      .def("update", &Update)
      .def("keys", &KeysOf);
}

}  // namespace hps::python
