// Answers /api/lookup: one row with its status, for people.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "hps/store.h"
#include "hps/types.h"

namespace hps::server {

struct KeyQuestion {
  std::string table;  // MODEL/TABLE
  Key key = 0;
};

// Reads "table=MODEL/TABLE&key=N", percent-encoded. A key is a signed decimal; above 2^63 - 1 it is
// taken bit for bit. Errors: INVALID_ARGUMENT, which says what is missing, wrong or too much.
absl::StatusOr<KeyQuestion> ParseKeyQuestion(std::string_view query);

// JSON: {"version", "table", "key" (text: JavaScript's numbers would round it), "status", "dim",
// "seconds", "row"}; NaN and the infinities of a row are the texts "NaN", "Infinity", "-Infinity".
// Thread-safe; opens a session for itself. Errors: those of NewSession, FindTable and Lookup.
absl::StatusOr<std::string> AnswerKeyQuestion(Store& store, const KeyQuestion& question);

}  // namespace hps::server
