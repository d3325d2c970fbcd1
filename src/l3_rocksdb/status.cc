#include "l3_rocksdb/status.h"

#include <cerrno>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/public_message.h"

namespace hps {
namespace {

// RocksDB keeps the error of a system call only as text, at the end of the status.
bool IsSystemError(const rocksdb::Status& status, int error_number) {
  return status.ToString().ends_with(": " + std::generic_category().message(error_number));
}

std::optional<absl::StatusCode> CodeOfSystemError(const rocksdb::Status& status) {
  constexpr struct {
    int error_number;
    absl::StatusCode code;
  } kCodes[] = {
      {ENOSPC, absl::StatusCode::kResourceExhausted},
      {EDQUOT, absl::StatusCode::kResourceExhausted},
      {EFBIG, absl::StatusCode::kResourceExhausted},
      {ENOMEM, absl::StatusCode::kResourceExhausted},
      {EMFILE, absl::StatusCode::kResourceExhausted},
      {ENFILE, absl::StatusCode::kResourceExhausted},
      {EACCES, absl::StatusCode::kPermissionDenied},
      {EPERM, absl::StatusCode::kPermissionDenied},
      {EROFS, absl::StatusCode::kPermissionDenied},
  };
  for (const auto& [error_number, code] : kCodes) {
    if (IsSystemError(status, error_number)) return code;
  }
  return std::nullopt;
}

absl::StatusCode CodeOf(const rocksdb::Status& status) {
  using Sub = rocksdb::Status::SubCode;
  switch (status.subcode()) {
    case Sub::kNoSpace:
    case Sub::kSpaceLimit:
    case Sub::kMemoryLimit:
      return absl::StatusCode::kResourceExhausted;
    default:
      break;
  }
  switch (status.code()) {
    case rocksdb::Status::kOk:
      return absl::StatusCode::kOk;
    case rocksdb::Status::kNotFound:
      return absl::StatusCode::kNotFound;
    case rocksdb::Status::kCorruption:
      return absl::StatusCode::kDataLoss;
    case rocksdb::Status::kNotSupported:
      return absl::StatusCode::kUnimplemented;
    case rocksdb::Status::kTimedOut:
    case rocksdb::Status::kExpired:
      return absl::StatusCode::kDeadlineExceeded;
    case rocksdb::Status::kAborted:
      return absl::StatusCode::kAborted;
    case rocksdb::Status::kColumnFamilyDropped:
      return absl::StatusCode::kFailedPrecondition;
    case rocksdb::Status::kIOError:
      return CodeOfSystemError(status).value_or(absl::StatusCode::kUnavailable);
    case rocksdb::Status::kIncomplete:
    case rocksdb::Status::kShutdownInProgress:
    case rocksdb::Status::kBusy:
    case rocksdb::Status::kTryAgain:
    case rocksdb::Status::kCompactionTooLarge:
      return absl::StatusCode::kUnavailable;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::Status FromRocksStatus(const rocksdb::Status& status, std::string_view what) {
  if (status.ok()) return absl::OkStatus();
  absl::Status translated(CodeOf(status), absl::StrCat(std::string(what), ": ", status.ToString()));
  return IsNoSpace(status) ? DiskFull(std::move(translated)) : translated;
}

bool IsDamage(const rocksdb::Status& status) {
  // A table file with a damaged footer is reported as "not supported".
  return status.IsCorruption() || status.IsNotSupported() || IsGone(status);
}

bool IsNoSpace(const rocksdb::Status& status) {
  if (status.ok()) return false;
  return status.IsNoSpace() || status.subcode() == rocksdb::Status::SubCode::kSpaceLimit ||
         IsSystemError(status, ENOSPC) || IsSystemError(status, EDQUOT);
}

absl::Status FromReadStatus(const rocksdb::Status& status, std::string_view what) {
  absl::Status read = FromRocksStatus(status, what);
  return IsDamage(status) ? absl::DataLossError(read.message()) : read;
}

}  // namespace hps
