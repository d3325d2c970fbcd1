#include "server/pages/fuzz_key_question.h"

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "hps/table_spec.h"
#include "server/pages/key_lookup.h"

namespace hps::server {

void FuzzKeyQuestion(std::span<const std::byte> bytes) {
  const auto* const text = static_cast<const char*>(static_cast<const void*>(bytes.data()));
  const auto question = ParseKeyQuestion({text, bytes.size()});
  if (!question.ok()) {
    HPS_CHECK(absl::IsInvalidArgument(question.status()));
    for (const char c : question.status().message()) HPS_CHECK(static_cast<unsigned char>(c) >= 32);
    return;
  }
  HPS_CHECK(ValidateTableName(question->table).ok());
  // What was understood can be asked in the plainest way, and means the same.
  const auto again =
      ParseKeyQuestion(absl::StrCat("table=", question->table, "&key=", question->key));
  HPS_CHECK(again.ok() && again->table == question->table && again->key == question->key);
}

}  // namespace hps::server
