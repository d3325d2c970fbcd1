#include "node/config_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace hps {
namespace {

using ::testing::HasSubstr;

// Catches: a path that is relative to a directory which the reader of the text does not know.
TEST(ConfigSettingsTest, PathsArePrintedAbsolute) {
  Config config;
  config.server.admin_token_file = "secret/../admin";
  config.model.push_back({.name = "m", .dense = "m.onnx"});
  const std::string here = std::filesystem::current_path().string();
  EXPECT_THAT(PrintConfig(config),
              HasSubstr("server.security.admin_token_file = \"" + here + "/admin\""));
  EXPECT_THAT(PrintConfig(config), HasSubstr("dense = \"" + here + "/m.onnx\""));
}

// An enumeration's names are listed in the order of its values.
TEST(ConfigSettingsTest, EnumerationsHaveTheirNames) {
  Config config;
  const auto expect_name = [&](auto& member, auto value, const std::string& line) {
    member = value;
    EXPECT_THAT(PrintConfig(config), HasSubstr(line + "  # default\n"));
  };
  expect_name(config.store.sync, SyncMode::kNever, "store.sync = \"never\"");
  expect_name(config.l2.kind, L2Kind::kNone, "l2.kind = \"none\"");
  expect_name(config.l2.eviction, EvictionPolicy::kRandom, "l2.eviction = \"random\"");
  expect_name(config.server.late_answers, LateAnswers::kError, "late_answers = \"error\"");
  expect_name(config.server.dense_device, DenseDevice::kCpu, "dense_device = \"cpu\"");
  expect_name(config.server.dense_math, DenseMath::kBfloat16, "dense_math = \"bfloat16\"");
  expect_name(config.log.level, LogLevel::kOff, "log.level = \"off\"");
  expect_name(config.log.format, LogFormat::kJson, "log.format = \"json\"");
  config.log.level = static_cast<LogLevel>(5);
  EXPECT_EQ(ValidateConfig(config).code(), absl::StatusCode::kInvalidArgument);
}

// docs/configuration.md has, for every section, one table with exactly its settings, in their
// order: with name, type and default, and a text about each that ends with the old name.
TEST(ConfigSettingsTest, TheDocumentationAgrees) {
  std::ifstream file(std::string(HPS_SOURCE_DIRECTORY) + "/docs/configuration.md");
  ASSERT_TRUE(file.is_open());
  std::vector<std::string> rows;  // "section | `name` | type | default | meaning |"
  std::string section;
  bool is_table = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("### `[")) section = line.substr(4);
    if (is_table && line.starts_with("| `")) rows.push_back(section + " " + line);
    is_table = line.starts_with("| setting | type |") || (is_table && line.starts_with("|"));
  }
  Config config;
  ModelConfig model;
  TableConfig table;
  size_t row = 0;
  for (const std::vector<Setting>& settings :
       {SettingsOf(config), SettingsOf(model), SettingsOf(table)}) {
    for (const Setting& setting : settings) {
      const std::string name = setting.section().starts_with("model")
                                   ? "`[[" + setting.section() + "]]`"
                                   : "`[" + setting.section() + "]`";
      const std::string value = setting.value->Print("");
      // An unescaped bar would end the cell.
      const std::string type = absl::StrReplaceAll(setting.value->type(), {{"|", "\\|"}});
      const std::string begin = absl::StrCat(name, " | `", setting.short_name(), "` | ", type,
                                             " | ", value.empty() ? "-" : "`" + value + "`", " | ");
      const std::string end =
          setting.old_name.empty()
              ? ". |"
              : absl::StrCat(" Old name: `", std::string(setting.old_name), "`. |");
      ASSERT_LT(row, rows.size()) << "docs/configuration.md lacks: " << begin;
      EXPECT_TRUE(rows[row].starts_with(begin) && rows[row].ends_with(end) &&
                  rows[row].size() > begin.size() + end.size())
          << "docs/configuration.md: " << rows[row] << "\nshould be: " << begin << "..." << end;
      ++row;
    }
  }
  EXPECT_EQ(row, rows.size());
}

}  // namespace
}  // namespace hps
