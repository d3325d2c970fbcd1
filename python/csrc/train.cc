// hps._hps.train: the embedding engine, for hps.train. Here are the rows of tables; train_steps.cc
// and train_device.cc have the steps. The functions that work on rows release the GIL.
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
#include "python/csrc/train_arrays.h"
#include "python/csrc/train_options.h"
#include "train/embedding_shard.h"
#include "train/table_rows.h"
#include "train/unique_keys.h"
#include "train_cpu/host_shard.h"
#include "train_cpu/locked_shard.h"

namespace hps::python {
namespace {

namespace nb = nanobind;

template <typename T>
using Vector = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <typename T>
std::vector<T> Copy(const Vector<T>& array) {
  return {array.data(), array.data() + array.size()};
}

std::unique_ptr<EmbeddingShard> MakeShard(const nb::dict& d) {
  auto shard = HostShard::Create(OptionsOf(d));
  RaiseIfError(shard.status());
  return std::make_unique<LockedShard>(*std::move(shard));
}

nb::dict ToDict(ShardRows rows, bool with_state) {
  nb::dict d;
  d["keys"] = ToNumpy(std::move(rows.keys));
  d["values"] = ToNumpy(std::move(rows.values));
  d["step"] = rows.step;
  d["table_updates"] = rows.table_updates;
  if (!with_state) return d;
  d["last_seen"] = ToNumpy(std::move(rows.last_seen));
  d["update_counts"] = ToNumpy(std::move(rows.update_counts));
  d["pending_keys"] = ToNumpy(std::move(rows.pending_keys));
  d["pending_counts"] = ToNumpy(std::move(rows.pending_counts));
  return d;
}

nb::dict ReadRows(TableRows& shard, bool with_state) {
  absl::StatusOr<ShardRows> rows;
  {
    const ReleasedGil release;
    rows = shard.ReadRows(with_state);
  }
  RaiseIfError(rows.status());
  return ToDict(*std::move(rows), with_state);
}

void WriteRows(TableRows& shard, const nb::dict& d) {
  ShardRows rows;
  rows.keys = Copy(nb::cast<Vector<Key>>(d["keys"]));
  rows.values = Copy(nb::cast<Vector<float>>(d["values"]));
  rows.step = nb::cast<uint32_t>(d["step"]);
  rows.table_updates = nb::cast<uint32_t>(d["table_updates"]);
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

void EraseRows(TableRows& shard, const Vector<Key>& keys) {
  absl::Status status;
  {
    const ReleasedGil release;
    status = shard.EraseRows({keys.data(), keys.size()});
  }
  RaiseIfError(status);
}

DeltaReader ReaderOf(bool with_state) {
  return with_state ? DeltaReader::kCheckpoint : DeltaReader::kPublication;
}

nb::dict CollectDelta(TableRows& shard, bool with_state) {
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

void AcknowledgeDelta(TableRows& shard, bool with_state, const nb::tuple& through) {
  const DeltaMark mark{.change = nb::cast<uint32_t>(through[0]),
                       .step = nb::cast<uint32_t>(through[1])};
  const ReleasedGil release;
  shard.AcknowledgeDelta(ReaderOf(with_state), mark);
}

nb::dict Statistics(const TableRows& shard) {
  ShardStatistics statistics;
  {
    const ReleasedGil release;
    statistics = shard.Statistics();
  }
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
  nb::class_<TableRows>(m, "Shard")
      .def("read_rows", &ReadRows, nb::arg("with_state"))
      .def("write_rows", &WriteRows)
      .def("erase_rows", &EraseRows)
      .def("collect_delta", &CollectDelta, nb::arg("with_state"))
      .def("acknowledge_delta", &AcknowledgeDelta, nb::arg("with_state"), nb::arg("through"))
      .def("statistics", &Statistics);
  nb::class_<EmbeddingShard, TableRows>(m, "HostShard");
  m.def("make_shard", &MakeShard);
  m.def("owners", &Owners);
  BindTrainSteps(m);
  BindTrainDevice(m);
}

}  // namespace hps::python
