#include "base/public_message.h"

#include "absl/strings/cord.h"

namespace hps {
namespace {

constexpr char kPublicPayload[] = "hps/public";

}  // namespace

absl::Status Public(absl::Status status) {
  status.SetPayload(kPublicPayload, absl::Cord());
  return status;
}

bool IsPublic(const absl::Status& status) {
  return status.ok() || status.GetPayload(kPublicPayload).has_value();
}

std::string MessageForClients(const absl::Status& status) {
  return IsPublic(status) ? std::string(status.message())
                          : "internal storage error; see the server log";
}

std::string TextForLog(const absl::Status& status) {
  return status.ToString(absl::StatusToStringMode::kWithNoExtraData);
}

}  // namespace hps
