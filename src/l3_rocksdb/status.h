// RocksDB's statuses as ours: the one place where they are translated.
#pragma once

#include <rocksdb/status.h>

#include <string_view>

#include "absl/status/status.h"

namespace hps {

// `what` says what was being done, to what: "writing table 'm/t'".
//
//   no space, memory or quota left   RESOURCE_EXHAUSTED
//   corruption                       DATA_LOSS
//   lock held, busy, shutdown, I/O   UNAVAILABLE
//   deadline                         DEADLINE_EXCEEDED
//   not found                        NOT_FOUND
//   column family dropped            FAILED_PRECONDITION
//   not supported                    UNIMPLEMENTED
//   invalid argument, merge          INTERNAL: hps asked for something that makes no sense
absl::Status FromRocksStatus(const rocksdb::Status& status, std::string_view what);

}  // namespace hps
