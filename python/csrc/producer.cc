// The producer of the update stream.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hps/update_producer.h"
#include "nanobind/nanobind.h"
#include "nanobind/stl/map.h"
#include "nanobind/stl/string.h"
#include "nanobind/stl/unique_ptr.h"
#include "python/csrc/arrays.h"
#include "python/csrc/bindings.h"
#include "python/csrc/errors.h"
#include "python/csrc/gil.h"
#include "types/elements.h"

namespace hps::python {
namespace {

namespace nb = nanobind;

struct OpenProducer {
  OpenProducer(TableSpec table_spec, std::unique_ptr<UpdateProducer> producer)
      : spec(std::move(table_spec)), handle(std::move(producer), "producer") {}

  const TableSpec spec;
  Handle<UpdateProducer> handle;
};

std::chrono::milliseconds Milliseconds(double seconds) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Seconds(seconds));
}

std::unique_ptr<OpenProducer> MakeProducer(const std::string& brokers, const std::string& table,
                                           uint32_t dim, const std::string& dtype,
                                           std::map<std::string, std::string> kafka) {
  UpdateProducerOptions options{.brokers = brokers, .kafka = std::move(kafka)};
  options.table = {.name = table, .dim = dim};
  for (const Dtype one : {Dtype::kFloat16, Dtype::kBfloat16})
    if (DtypeName(one) == dtype) options.table.dtype = one;
  absl::StatusOr<std::unique_ptr<UpdateProducer>> producer;
  {
    const ReleasedGil released;
    producer = UpdateProducer::Create(options);
  }
  return std::make_unique<OpenProducer>(options.table, ValueOrRaise(std::move(producer)));
}

// Rows of None delete the keys.
void Publish(const OpenProducer& open, nb::handle keys, nb::handle rows, double timeout) {
  const std::shared_ptr<UpdateProducer> producer = open.handle.Use();
  const std::chrono::milliseconds longest = Milliseconds(timeout);
  std::vector<Key> widened;
  Array key_array;
  const std::span<const Key> key_span = ReadKeys(keys, {"keys"}, widened, key_array);
  RowArray read;
  Array row_array;
  bool is_other = false;
  if (!rows.is_none()) {
    row_array = ReadArray(rows, {"rows"}, false);
    read = ReadRows(row_array, key_span.size());
    is_other = read.dtype != open.spec.dtype;
    if (read.dim != open.spec.dim || (is_other && read.dtype != Dtype::kFloat32))
      RaiseInvalid("rows: another dim or dtype than the producer's");
  }
  absl::Status status;
  {
    const ReleasedGil released;
    if (rows.is_none()) {
      status = producer->Delete(key_span, longest);
    } else if (is_other) {
      const auto converted = ConvertChangedRows(read.bytes, open.spec.dtype);
      status =
          converted.ok() ? producer->Upsert(key_span, *converted, longest) : converted.status();
    } else {
      status = producer->Upsert(key_span, read.bytes, longest);
    }
  }
  RaiseIfError(status);
}

void Flush(const OpenProducer& open, double timeout) {
  const std::shared_ptr<UpdateProducer> producer = open.handle.Use();
  const std::chrono::milliseconds longest = Milliseconds(timeout);
  absl::Status status;
  {
    const ReleasedGil released;
    status = producer->Flush(longest);
  }
  RaiseIfError(status);
}

nb::dict Statistics(const OpenProducer& open) {
  const UpdateProducerStatistics statistics = open.handle.Use()->Statistics();
  nb::dict result;
  result["rows"] = statistics.rows;
  result["rows_delivered"] = statistics.rows_delivered;
  result["rows_failed"] = statistics.rows_failed;
  result["messages_delivered"] = statistics.messages_delivered;
  result["messages_failed"] = statistics.messages_failed;
  result["bytes_delivered"] = statistics.bytes_delivered;
  result["memory_bytes"] = statistics.memory_bytes;
  return result;
}

}  // namespace

void BindProducer(nb::module_& module) {
  nb::class_<OpenProducer>(module, "Producer")
      .def("publish", Publish, nb::arg("keys"), nb::arg("rows").none(), nb::arg("timeout"))
      .def("flush", Flush, nb::arg("timeout"))
      .def("statistics", Statistics)
      .def("partitions",
           [](const OpenProducer& open) { return open.handle.Use()->partition_count(); })
      .def("close", [](OpenProducer& open) { open.handle.Close(); });
  module.def("producer", MakeProducer, nb::arg("brokers"), nb::arg("table"), nb::arg("dim"),
             nb::arg("dtype"), nb::arg("kafka"));
}

}  // namespace hps::python
