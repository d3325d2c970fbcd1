// Stores the name of the table that an error is about as a payload of its status, so that callers
// need not parse the message.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/cord.h"

namespace hps {

inline constexpr char kTablePayload[] = "hps/table";

inline absl::Status WithTable(absl::Status status, std::string_view table) {
  status.SetPayload(kTablePayload, absl::Cord(std::string(table)));
  return status;
}

// The full name of the table; nullopt if the error is not about one table.
inline std::optional<std::string> TableOfError(const absl::Status& status) {
  const auto payload = status.GetPayload(kTablePayload);
  if (!payload.has_value()) return std::nullopt;
  return std::string(*payload);
}

}  // namespace hps
