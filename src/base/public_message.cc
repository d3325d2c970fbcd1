#include "base/public_message.h"

#include <utility>

#include "absl/strings/cord.h"

namespace hps {
namespace {

constexpr char kPublicPayload[] = "hps/public";
constexpr char kDiskFullPayload[] = "hps/disk_full";

}  // namespace

absl::Status Public(absl::Status status) {
  status.SetPayload(kPublicPayload, absl::Cord());
  return status;
}

bool IsPublic(const absl::Status& status) {
  return status.ok() || status.GetPayload(kPublicPayload).has_value();
}

absl::Status DiskFull(absl::Status status) {
  status.SetPayload(kDiskFullPayload, absl::Cord());
  return status;
}

bool IsDiskFull(const absl::Status& status) {
  return status.GetPayload(kDiskFullPayload).has_value();
}

std::string MessageForClients(const absl::Status& status) {
  if (IsPublic(status)) return std::string(status.message());
  return IsDiskFull(status) ? "the server's disk is full: free space on it or drop tables"
                            : "internal storage error; see the server log";
}

absl::Status ForClients(const absl::Status& status) {
  absl::Status shown(status.code(), MessageForClients(status));
  return IsDiskFull(status) ? DiskFull(std::move(shown)) : shown;
}

absl::Status Reworded(const absl::Status& status, const std::string& message) {
  absl::Status reworded(status.code(), message);
  status.ForEachPayload([&](absl::string_view type, const absl::Cord& payload) {
    reworded.SetPayload(type, payload);
  });
  return reworded;
}

std::string TextForLog(const absl::Status& status) {
  return status.ToString(absl::StatusToStringMode::kWithNoExtraData);
}

}  // namespace hps
