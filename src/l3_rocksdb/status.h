// RocksDB's statuses as ours: the one place where they are translated.
#pragma once

#include <rocksdb/status.h>

#include <string_view>

#include "absl/status/status.h"

namespace hps {

// `what` says what was being done, to what: "writing table 'm/t'".
//
//   no space, quota, memory or       RESOURCE_EXHAUSTED
//   descriptor left, a file's limit
//   no permission, read-only disk    PERMISSION_DENIED
//   corruption                       DATA_LOSS
//   lock held, busy, shutdown,       UNAVAILABLE
//   any other I/O
//   deadline                         DEADLINE_EXCEEDED
//   not found                        NOT_FOUND
//   column family dropped            FAILED_PRECONDITION
//   not supported                    UNIMPLEMENTED
//   invalid argument, merge          INTERNAL: hps asked for something that makes no sense
absl::Status FromRocksStatus(const rocksdb::Status& status, std::string_view what);

// Whether a failed read says that the store is damaged: bytes are wrong, or a file is missing or
// makes no sense. An I/O error does not: nothing is known of the bytes then, and they may be right
// once the disk answers or the process has a descriptor or memory again.
bool IsDamage(const rocksdb::Status& status);

// Whether the disk is full, or the owner's part of it.
bool IsNoSpace(const rocksdb::Status& status);

// FromRocksStatus for reading a store that nobody writes to: DATA_LOSS where IsDamage.
absl::Status FromReadStatus(const rocksdb::Status& status, std::string_view what);

}  // namespace hps
