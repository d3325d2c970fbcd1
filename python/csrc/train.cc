// hps._hps.train: the embedding engine, for hps.train.
//
// Arrays of a step come as addresses, because a step has some hundred of them and an address costs
// a tenth of what an array object does; hps.train checks their types and keeps them alive. The
// functions that work on rows release the GIL.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "nanobind/ndarray.h"
#include "nanobind/stl/string.h"
#include "nanobind/stl/unique_ptr.h"
#include "python/csrc/bindings.h"
#include "python/csrc/errors.h"
#include "python/csrc/gil.h"
#include "python/csrc/train_batches.h"
#include "train/embedding_shard.h"
#include "train/table_calls.h"
#include "train/unique_keys.h"
#include "train_cpu/host_shard.h"

namespace hps::python {
namespace {

namespace nb = nanobind;

template <typename T>
using Vector = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <typename T>
std::vector<T> Copy(const Vector<T>& array) {
  return {array.data(), array.data() + array.size()};
}

// (shard, step or None, keys, key count, offsets, offset count, weights, weight count, pooling,
//  out, out count)
TableForward ForwardOf(nb::handle item) {
  const auto t = nb::cast<nb::tuple>(item);
  TableForward table;
  table.shard = nb::cast<EmbeddingShard*>(t[0]);
  table.step = t[1].is_none() ? nullptr : nb::cast<StepIndex*>(t[1]);
  table.batch = BatchOf(t, 2);
  table.out = SpanAt<float>(t[9], t[10]);
  return table;
}

// (shard, step, gradients, gradient count, learning rate, scale)
TableBackward BackwardOf(nb::handle item) {
  const auto t = nb::cast<nb::tuple>(item);
  return {.shard = nb::cast<EmbeddingShard*>(t[0]),
          .step = nb::cast<StepIndex*>(t[1]),
          .gradient = {.gradients = SpanAt<const float>(t[2], t[3]),
                       .learning_rate = nb::cast<float>(t[4]),
                       .scale = nb::cast<float>(t[5])}};
}

void Forward(const nb::list& items) {
  std::vector<TableForward> tables;
  tables.reserve(items.size());
  for (const nb::handle item : items) tables.push_back(ForwardOf(item));
  absl::Status status;
  {
    const ReleasedGil release;
    status = ForwardTables(tables);
  }
  RaiseIfError(status);
}

bool Backward(const nb::list& items) {
  std::vector<TableBackward> tables;
  tables.reserve(items.size());
  for (const nb::handle item : items) tables.push_back(BackwardOf(item));
  absl::StatusOr<bool> applied(false);
  {
    const ReleasedGil release;
    applied = BackwardTables(tables);
  }
  RaiseIfError(applied.status());
  return *applied;
}

std::unique_ptr<EmbeddingShard> MakeShard(const nb::dict& d) {
  ShardOptions options;
  options.name = nb::cast<std::string>(d["name"]);
  options.dim = nb::cast<uint32_t>(d["dim"]);
  options.optimizer = {.kind = static_cast<OptimizerKind>(nb::cast<int>(d["optimizer"])),
                       .epsilon = nb::cast<float>(d["epsilon"]),
                       .initial_accumulator = nb::cast<float>(d["initial_accumulator"]),
                       .beta1 = nb::cast<float>(d["beta1"]),
                       .beta2 = nb::cast<float>(d["beta2"])};
  options.initializer = {.low = nb::cast<float>(d["low"]),
                         .high = nb::cast<float>(d["high"]),
                         .seed = nb::cast<uint64_t>(d["seed"])};
  options.admit_after = nb::cast<uint32_t>(d["admit_after"]);
  options.expire_after = nb::cast<uint32_t>(d["expire_after"]);
  options.rows_max = nb::cast<uint64_t>(d["rows_max"]);
  auto shard = HostShard::Create(options);
  RaiseIfError(shard.status());
  return *std::move(shard);
}

nb::dict ToDict(ShardRows rows, bool with_state) {
  nb::dict d;
  d["keys"] = ToNumpy(std::move(rows.keys));
  d["values"] = ToNumpy(std::move(rows.values));
  d["step"] = rows.step;
  if (!with_state) return d;
  d["last_seen"] = ToNumpy(std::move(rows.last_seen));
  d["update_counts"] = ToNumpy(std::move(rows.update_counts));
  d["pending_keys"] = ToNumpy(std::move(rows.pending_keys));
  d["pending_counts"] = ToNumpy(std::move(rows.pending_counts));
  return d;
}

nb::dict ReadRows(EmbeddingShard& shard, bool with_state) {
  absl::StatusOr<ShardRows> rows;
  {
    const ReleasedGil release;
    rows = shard.ReadRows(with_state);
  }
  RaiseIfError(rows.status());
  return ToDict(*std::move(rows), with_state);
}

void WriteRows(EmbeddingShard& shard, const nb::dict& d) {
  ShardRows rows;
  rows.keys = Copy(nb::cast<Vector<Key>>(d["keys"]));
  rows.values = Copy(nb::cast<Vector<float>>(d["values"]));
  rows.step = nb::cast<uint32_t>(d["step"]);
  if (d.contains("update_counts")) {
    rows.last_seen = Copy(nb::cast<Vector<uint32_t>>(d["last_seen"]));
    rows.update_counts = Copy(nb::cast<Vector<uint32_t>>(d["update_counts"]));
    rows.pending_keys = Copy(nb::cast<Vector<Key>>(d["pending_keys"]));
    rows.pending_counts = Copy(nb::cast<Vector<uint32_t>>(d["pending_counts"]));
  }
  absl::Status status;
  {
    const ReleasedGil release;
    status = shard.WriteRows(rows);
  }
  RaiseIfError(status);
}

DeltaReader ReaderOf(bool with_state) {
  return with_state ? DeltaReader::kCheckpoint : DeltaReader::kPublication;
}

nb::dict CollectDelta(EmbeddingShard& shard, bool with_state) {
  absl::StatusOr<ShardDelta> delta;
  {
    const ReleasedGil release;
    delta = shard.CollectDelta(ReaderOf(with_state));
  }
  RaiseIfError(delta.status());
  nb::dict d = ToDict(std::move(delta->changed), with_state);
  d["erased"] = ToNumpy(std::move(delta->erased));
  d["through"] = nb::make_tuple(delta->through.change, delta->through.step);
  return d;
}

void AcknowledgeDelta(EmbeddingShard& shard, bool with_state, const nb::tuple& through) {
  shard.AcknowledgeDelta(ReaderOf(with_state), {.change = nb::cast<uint32_t>(through[0]),
                                                .step = nb::cast<uint32_t>(through[1])});
}

nb::dict Statistics(const EmbeddingShard& shard) {
  const ShardStatistics statistics = shard.Statistics();
  nb::dict d;
  d["rows"] = statistics.rows;
  d["bytes"] = statistics.bytes;
  d["pending"] = statistics.pending;
  d["erased"] = statistics.erased;
  d["step"] = statistics.step;
  return d;
}

nb::object Owners(const Vector<Key>& keys, uint32_t rank_count) {
  std::vector<int64_t> owners(keys.size());
  for (size_t i = 0; i < keys.size(); ++i)
    owners[i] = static_cast<int64_t>(OwnerOfKey(keys.data()[i], rank_count));
  return ToNumpy(std::move(owners));
}

}  // namespace

void BindTrain(nb::module_& module) {
  nb::module_ m = module.def_submodule("train", "The embedding engine; used by hps.train.");
  nb::class_<StepIndex>(m, "Step");
  nb::class_<EmbeddingShard>(m, "Shard")
      .def("new_step", &EmbeddingShard::NewStep)
      .def("read_rows", &ReadRows, nb::arg("with_state"))
      .def("write_rows", &WriteRows)
      .def("erase_rows",
           [](EmbeddingShard& shard, const Vector<Key>& keys) {
             RaiseIfError(shard.EraseRows({keys.data(), keys.size()}));
           })
      .def("collect_delta", &CollectDelta, nb::arg("with_state"))
      .def("acknowledge_delta", &AcknowledgeDelta, nb::arg("with_state"), nb::arg("through"))
      .def("statistics", &Statistics);
  m.def("make_shard", &MakeShard);
  m.def("forward", &Forward);
  m.def("backward", &Backward);
  m.def("owners", &Owners);
  BindTrainRanks(m);
}

}  // namespace hps::python
