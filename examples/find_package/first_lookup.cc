// Writes a table, imports it, looks up rows and compares them: the main API on one page.
//
//   first_lookup DIRECTORY    working directory; must be empty or not exist

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <span>
#include <string>
#include <vector>

#include "hps/store.h"

namespace {

constexpr uint32_t kDim = 4;
constexpr int64_t kRowCount = 1000;
constexpr float kDefaultValue = 0.5F;

// Element i of the row of `key`.
float Element(int64_t key, uint32_t i) { return static_cast<float>(key) + 0.25F * float(i); }

// Writes the bytes of the elements, as in a HugeCTR table.
template <typename T>
bool WriteFile(const std::filesystem::path& path, const std::vector<T>& elements) {
  std::ofstream file(path, std::ios::binary);
  for (const T& element : elements) {
    char bytes[sizeof(T)];
    std::memcpy(bytes, &element, sizeof(T));
    file.write(bytes, sizeof(bytes));
  }
  return file.good();
}

// A table in the layout of HugeCTR: a directory with the files `key` and `emb_vector`.
bool WriteTable(const std::filesystem::path& directory) {
  std::vector<int64_t> keys;
  std::vector<float> rows;
  for (int64_t key = 0; key < kRowCount; ++key) {
    keys.push_back(key);
    for (uint32_t i = 0; i < kDim; ++i) rows.push_back(Element(key, i));
  }
  std::filesystem::create_directories(directory);
  return WriteFile(directory / "key", keys) && WriteFile(directory / "emb_vector", rows);
}

// Looks up present and absent keys and counts wrong elements.
absl::StatusOr<int> CountWrong(hps::LookupSession& session) {
  const absl::StatusOr<hps::TableIndex> table = session.FindTable("item");
  if (!table.ok()) return table.status();

  const std::vector<hps::Key> keys = {0, 999, 7, 1000, -1};  // the last two are absent
  std::vector<float> rows(keys.size() * kDim);
  std::vector<hps::KeyStatus> status(keys.size());
  const hps::HostTableQuery query{.table = *table,
                                  .keys = keys,
                                  .rows = std::as_writable_bytes(std::span(rows)),
                                  .status = status};
  hps::LookupCounts counts;
  // Rows that have not arrived by then are replaced by default rows, which the status shows.
  const absl::Status done =
      session.Lookup({.queries = {&query, 1}, .timeout = std::chrono::minutes(1)}, &counts);
  if (!done.ok()) return done;

  int wrong = counts.total() == keys.size() ? 0 : 1;
  for (size_t k = 0; k < keys.size(); ++k) {
    const bool present = keys[k] >= 0 && keys[k] < kRowCount;
    if (present == (status[k] == hps::KeyStatus::kAbsent)) ++wrong;
    std::cout << "key " << keys[k] << ": " << hps::KeyStatusName(status[k]) << "\n";
    for (uint32_t i = 0; i < kDim; ++i) {
      if (rows[k * kDim + i] != (present ? Element(keys[k], i) : kDefaultValue)) ++wrong;
    }
  }
  return wrong;
}

absl::StatusOr<int> Run(const std::filesystem::path& directory) {
  if (!WriteTable(directory / "item")) return absl::InternalError("can't write the table's files");

  hps::Config config;
  config.store.path = (directory / "store").string();
  absl::StatusOr<std::unique_ptr<hps::Store>> store =
      hps::Store::Open(config, hps::OpenMode::kCreate);
  if (!store.ok()) return store.status();

  const absl::StatusOr<hps::ImportReport> report =
      (*store)->Import({.name = "shop/item",
                        .from = (directory / "item").string(),
                        .dim = kDim,
                        .default_value = kDefaultValue});
  if (!report.ok()) return report.status();
  std::cout << "imported " << report->tables.at(0).info.row_count << " rows\n";

  absl::StatusOr<std::unique_ptr<hps::LookupSession>> session = (*store)->NewSession("shop", {});
  if (!session.ok()) return session.status();
  return CountWrong(**session);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: first_lookup DIRECTORY\n";
    return 2;
  }
  const absl::StatusOr<int> wrong = Run(argv[1]);
  if (!wrong.ok()) {
    std::cerr << "first_lookup: " << wrong.status() << "\n";
    return 1;
  }
  std::cout << *wrong << " wrong\n";
  return *wrong == 0 ? 0 : 1;
}
