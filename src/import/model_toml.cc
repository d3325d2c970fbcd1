#include "import/model_toml.h"

#include <cstdio>

#include "absl/strings/str_cat.h"

namespace hps {
namespace {

// A basic string of TOML.
std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char character : text) {
    const auto byte = static_cast<unsigned char>(character);
    if (character == '"' || character == '\\') {
      quoted += '\\';
      quoted += character;
    } else if (byte < 0x20 || byte == 0x7f) {
      char escape[8];
      std::snprintf(escape, sizeof(escape), "\\u%04X", byte);
      quoted += escape;
    } else {
      quoted += character;
    }
  }
  return quoted + "\"";
}

}  // namespace

std::string ModelToml(const ModelDescription& model) {
  std::string text = absl::StrCat("name = ", Quoted(model.name), "\ntables = [");
  for (size_t i = 0; i < model.tables.size(); ++i)
    absl::StrAppend(&text, i == 0 ? "" : ", ", Quoted(model.tables[i]));
  text += "]\n";
  if (!model.has_network) return text;
  absl::StrAppend(&text, "[network]\nfile = ", Quoted(kNetworkFile), "\n");
  for (const NetworkInput& input : model.inputs) {
    absl::StrAppend(&text, "[[network.input]]\nname = ", Quoted(input.name), "\n");
    if (input.table.empty()) continue;
    absl::StrAppend(&text, "table = ", Quoted(input.table), "\npooling = \"",
                    PoolingName(input.pooling), "\"\n");
  }
  return text;
}

}  // namespace hps
