#include "import/model_toml.h"

#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace hps {

std::string QuoteToml(const std::string& text) {
  std::string quoted;
  AppendJsonString(text, &quoted);  // TOML has all escapes of JSON that this writes
  return quoted;
}

std::string ModelToml(const ModelDescription& model) {
  std::string text = absl::StrCat("name = ", QuoteToml(model.name), "\ntables = [");
  for (size_t i = 0; i < model.tables.size(); ++i)
    absl::StrAppend(&text, i == 0 ? "" : ", ", QuoteToml(model.tables[i]));
  text += "]\n";
  if (!model.has_network) return text;
  absl::StrAppend(&text, "[network]\nfile = ", QuoteToml(kNetworkFile), "\n");
  for (const NetworkInput& input : model.inputs) {
    absl::StrAppend(&text, "[[network.input]]\nname = ", QuoteToml(input.name), "\n");
    if (input.table.empty()) continue;
    absl::StrAppend(&text, "table = ", QuoteToml(input.table), "\npooling = \"",
                    PoolingName(input.pooling), "\"\n");
  }
  return text;
}

}  // namespace hps
