// The handlers of hps.jax: what a program that XLA has compiled calls for a lookup.
//
// XLA calls them on a thread of its own, without the GIL, which they do not take. That for CUDA has
// no trait that lets XLA capture it in a CUDA graph: a lookup waits.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "nanobind/nanobind.h"
#include "python/csrc/bindings.h"
#include "python/csrc/operator_lookup.h"
#include "xla/ffi/api/ffi.h"

namespace hps::python {
namespace {

namespace nb = nanobind;
namespace ffi = xla::ffi;

// The name that XLA expects of the capsule of a handler.
constexpr const char* kCapsuleName = "xla._CUSTOM_CALL_TARGET";

ffi::Error ErrorOf(const absl::Status& status) {
  return {static_cast<ffi::ErrorCode>(status.code()), std::string(status.message())};
}

// What a call reads and writes.
struct Buffers {
  std::vector<OperatorKeys> keys;
  std::vector<float*> rows;
  std::vector<KeyStatus*> statuses;
};

ElementType TypeOf(ffi::DataType type) {
  switch (type) {
    case ffi::DataType::S32:
      return ElementType::kInt32;
    case ffi::DataType::S64:
      return ElementType::kInt64;
    case ffi::DataType::U32:
      return ElementType::kUint32;
    case ffi::DataType::U64:
      return ElementType::kUint64;
    default:
      return ElementType::kOther;
  }
}

// On a device, keys of 32 bits are the words of 64 bits (hps.jax._words).
absl::StatusOr<OperatorKeys> KeysOf(const ffi::AnyBuffer& buffer, MemorySpace space) {
  const ElementType type = TypeOf(buffer.element_type());
  const size_t count = buffer.element_count();
  if (space == MemorySpace::kHost || type == ElementType::kInt64 || type == ElementType::kUint64)
    return OperatorKeys{buffer.untyped_data(), count, type};
  const auto dims = buffer.dimensions();
  if (type == ElementType::kOther || dims.size() == 0 || dims.back() != 2)
    return absl::InvalidArgumentError("keys: expected 64 bits, or two words of 32 bits for each");
  return OperatorKeys{buffer.untyped_data(), count / 2, ElementType::kInt64};
}

// Adds an output. They are the rows of each table, then their statuses if they are wanted.
absl::Status AddOutput(ffi::AnyBuffer& buffer, size_t number, std::span<const uint32_t> dims,
                       Buffers& buffers) {
  const size_t table = number % dims.size();
  const bool is_rows = number < dims.size();
  const size_t count = buffers.keys[table].count * (is_rows ? dims[table] : 1);
  if (buffer.element_type() != (is_rows ? ffi::DataType::F32 : ffi::DataType::U8) ||
      buffer.element_count() != count) {
    return absl::InvalidArgumentError(absl::StrCat(
        "output ", number, ": expected ", count, " elements of ", is_rows ? "float32" : "uint8",
        ", found ", buffer.element_count(), " or another type"));
  }
  if (is_rows)
    buffers.rows.push_back(static_cast<float*>(buffer.untyped_data()));
  else
    buffers.statuses.push_back(static_cast<KeyStatus*>(buffer.untyped_data()));
  return absl::OkStatus();
}

ffi::ErrorOr<Buffers> ReadBuffers(const ffi::RemainingArgs& keys, const ffi::RemainingRets& outputs,
                                  std::span<const uint32_t> dims, MemorySpace space) {
  Buffers buffers;
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto buffer = keys.get<ffi::AnyBuffer>(i);
    if (!buffer.has_value()) return ffi::Unexpected(buffer.error());
    const absl::StatusOr<OperatorKeys> read = KeysOf(*buffer, space);
    if (!read.ok()) return ffi::Unexpected(ErrorOf(read.status()));
    buffers.keys.push_back(*read);
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    auto buffer = outputs.get<ffi::AnyBuffer>(i);
    if (!buffer.has_value()) return ffi::Unexpected(buffer.error());
    const absl::Status added = AddOutput(**buffer, i, dims, buffers);
    if (!added.ok()) return ffi::Unexpected(ErrorOf(added));
  }
  return buffers;
}

ffi::Error Answer(const OperatorTarget& target, const ffi::RemainingArgs& keys,
                  const ffi::RemainingRets& outputs, const OperatorMemory& memory) {
  const absl::StatusOr<OperatorTables> tables = FindTables(target);
  if (!tables.ok()) return ErrorOf(tables.status());
  const size_t count = tables->dims.size();
  if (keys.size() != count || (outputs.size() != count && outputs.size() != 2 * count)) {
    return ErrorOf(absl::InvalidArgumentError(
        absl::StrCat("keys: expected those of ", count, " tables, found ", keys.size())));
  }
  const ffi::ErrorOr<Buffers> buffers = ReadBuffers(keys, outputs, tables->dims, memory.space);
  if (!buffers.has_value()) return buffers.error();
  return ErrorOf(LookUp(*tables, buffers->keys,
                        {.rows = buffers->rows, .statuses = buffers->statuses}, memory));
}

ffi::Error AnswerOnHost(std::string_view session, std::string_view tables, ffi::RemainingArgs keys,
                        ffi::RemainingRets outputs) {
  return Answer({.source = session, .tables = tables}, keys, outputs, {});
}

ffi::Error AnswerOnDevice(void* stream, std::string_view session, std::string_view tables,
                          ffi::RemainingArgs keys, ffi::RemainingRets outputs) {
  return Answer({.source = session, .tables = tables, .device = kSomeDevice}, keys, outputs,
                {MemorySpace::kDevice, stream});
}

XLA_FFI_DEFINE_HANDLER(kAnswerOnHost, AnswerOnHost,
                       ffi::Ffi::Bind()
                           .Attr<std::string_view>("session")
                           .Attr<std::string_view>("tables")
                           .RemainingArgs()
                           .RemainingRets());

XLA_FFI_DEFINE_HANDLER(kAnswerOnDevice, AnswerOnDevice,
                       ffi::Ffi::Bind()
                           .Ctx<ffi::PlatformStream<void*>>()
                           .Attr<std::string_view>("session")
                           .Attr<std::string_view>("tables")
                           .RemainingArgs()
                           .RemainingRets());

nb::capsule Capsule(XLA_FFI_Handler* handler) {
  return {reinterpret_cast<const void*>(handler), kCapsuleName};
}

// By the name that XLA has for the platform.
nb::dict Handlers() {
  nb::dict handlers;
  handlers["cpu"] = Capsule(kAnswerOnHost);
  handlers["CUDA"] = Capsule(kAnswerOnDevice);
  return handlers;
}

}  // namespace

void BindJax(nb::module_& module) { module.def("jax_handlers", Handlers); }

}  // namespace hps::python
