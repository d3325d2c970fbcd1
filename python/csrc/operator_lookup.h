// Lookups by operators of frameworks, which run without the GIL on threads of the framework and
// hold nothing of hps between their calls. Thread-safe.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hps/lookup_session.h"
#include "hps/types.h"
#include "nanobind/nanobind.h"
#include "python/csrc/arrays.h"
#include "python/csrc/sessions.h"

namespace hps::python {

// OperatorTarget::device for a framework that does not say which GPU its keys are on. LookUp
// compares the device of the stream with the session's.
inline constexpr int kSomeDevice = -2;

// Which tables an operator asks. `source` is the name of an open session, or what the framework's
// `finder` knows. `tables` has a line "model/table:dim" for each table, all of one model.
struct OperatorTarget {
  std::string_view source;
  std::string_view tables;
  int device = -1;  // where keys and rows are: a GPU, or kSomeDevice; -1 = host memory
  // A Python function (source, model, device) -> the name of a session, or (code, message) of an
  // error. Null = `source` is a session's name.
  PyObject* finder = nullptr;
};

// The tables of a target, found.
struct OperatorTables {
  std::shared_ptr<ThreadSessions> sessions;
  std::span<const TableIndex> indexes;
  std::span<const uint32_t> dims;
  std::shared_ptr<const void> owner;  // of the spans
};

// Keys of one table, without gaps.
struct OperatorKeys {
  const void* data = nullptr;
  size_t count = 0;
  ElementType type = ElementType::kOther;
};

// One pointer for each table.
struct OperatorOutputs {
  std::span<float* const> rows;               // [keys, dim] each, without gaps
  std::span<KeyStatus* const> statuses = {};  // empty = not wanted
};

// Where the keys and outputs of a lookup are.
struct OperatorMemory {
  MemorySpace space = MemorySpace::kHost;
  void* stream = nullptr;  // on a device: a cudaStream_t; null = the default stream
};

// Remembers what it found. Errors: FAILED_PRECONDITION (closed, made before a fork, a table of
// another dim), NOT_FOUND (a table), INVALID_ARGUMENT (`tables`; a session of another device);
// those of the finder.
absl::StatusOr<OperatorTables> FindTables(const OperatorTarget& target);

// The name of a table of a target: "ctr/user".
std::string_view TableName(std::string_view tables, size_t index);

// Writes the rows, and the statuses, of keys[i] to the outputs of table i. On a device, keys are
// read and outputs are written in the order of the stream.
// Errors: INVALID_ARGUMENT (a type of keys; a stream of another device than the session's), and
// those of LookupSession::Lookup.
absl::Status LookUp(const OperatorTables& tables, std::span<const OperatorKeys> keys,
                    const OperatorOutputs& outputs, const OperatorMemory& memory);

}  // namespace hps::python
