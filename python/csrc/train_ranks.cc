// hps._hps.train.RankTable and RankStep: the engine of tables that ranks share, for hps.train.
//
// As in train.cc, arrays of a step come as addresses.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "nanobind/ndarray.h"
#include "nanobind/stl/optional.h"
#include "nanobind/stl/vector.h"
#include "python/csrc/bindings.h"
#include "python/csrc/errors.h"
#include "python/csrc/gil.h"
#include "python/csrc/train_batches.h"
#include "train/embedding_shard.h"
#include "train_cpu/rank_step.h"
#include "train_cpu/shared_word.h"

namespace hps::python {
namespace {

namespace nb = nanobind;

using Keys = nb::ndarray<const Key, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Addresses = std::vector<uintptr_t>;

template <typename T>
std::vector<T*> Pointers(const Addresses& addresses) {
  std::vector<T*> pointers;
  pointers.reserve(addresses.size());
  for (const uintptr_t address : addresses) pointers.push_back(reinterpret_cast<T*>(address));
  return pointers;
}

void SetHot(RankTable& table, const Keys& keys) {
  table.hot.clear();
  table.hot.insert(keys.data(), keys.data() + keys.size());
}

RankStep* MakeStep(uint32_t rank, uint32_t rank_count, const std::vector<RankTable*>& tables,
                   const std::vector<int64_t>& ids) {
  const std::vector<const RankTable*> borrowed(tables.begin(), tables.end());
  return std::make_unique<RankStep>(RankPlace{.rank = rank, .rank_count = rank_count}, borrowed,
                                    ids)
      .release();
}

// Batches: (keys, key count, offsets, offset count, weights, weight count, pooling).
void Begin(RankStep& step, const nb::list& batches, bool is_training) {
  std::vector<BagBatch> read;
  read.reserve(batches.size());
  for (const nb::handle batch : batches) read.push_back(BatchOf(nb::cast<nb::tuple>(batch), 0));
  absl::Status status;
  {
    const ReleasedGil release;
    status = step.Begin(read, is_training);
  }
  RaiseIfError(status);
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
  std::vector<std::span<const int64_t>> messages;
  for (size_t rank = 0; rank < from.size(); ++rank)
    messages.emplace_back(reinterpret_cast<const int64_t*>(from[rank]), sizes[rank]);
  absl::Status status;
  {
    const ReleasedGil release;
    status = step.ReadMessages(messages);
  }
  RaiseIfError(status);
}

void LookUp(RankStep& step, const Addresses& to, const Addresses& outputs) {
  absl::Status status;
  {
    const ReleasedGil release;
    status = step.LookUp(Pointers<float>(to), Pointers<float>(outputs));
  }
  RaiseIfError(status);
}

void Pool(RankStep& step, const Addresses& from, const Addresses& outputs) {
  absl::Status status;
  {
    const ReleasedGil release;
    status = step.Pool(Pointers<const float>(from), Pointers<float>(outputs));
  }
  RaiseIfError(status);
}

void SumGradients(RankStep& step, const Addresses& gradients, const std::vector<size_t>& counts,
                  const Addresses& to) {
  absl::Status status;
  {
    const ReleasedGil release;
    status = step.SumGradients(Pointers<const float>(gradients), counts, Pointers<float>(to));
  }
  RaiseIfError(status);
}

bool Update(RankStep& step, const Addresses& from, const std::vector<float>& learning_rates,
            float scale) {
  std::vector<UpdateFactors> factors;
  for (const float rate : learning_rates)
    factors.push_back({.learning_rate = rate, .scale = scale});
  absl::StatusOr<bool> updated(false);
  {
    const ReleasedGil release;
    updated = step.Update(Pointers<const float>(from), factors);
  }
  RaiseIfError(updated.status());
  return *updated;
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

void BindTrainRanks(nb::module_& m) {
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
