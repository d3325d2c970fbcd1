#include "l3_rocksdb/files/page_store.h"

#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/fault_point.h"
#include "base/macros.h"
#include "l3_rocksdb/files/store_files.h"
#include "l3_rocksdb/status.h"

namespace hps {
namespace {

std::string Digits(Incarnation incarnation) {
  char digits[17];
  std::snprintf(digits, sizeof(digits), "%013" PRIx64, incarnation);
  return digits;
}

// The incarnation that a file of the directory belongs to, and its number.
std::optional<PageFileSet::value_type> ParseName(const std::string& name) {
  Incarnation incarnation = 0;
  uint64_t number = 0;
  if (std::sscanf(name.c_str(), "%" SCNx64 "-%" SCNu64, &incarnation, &number) != 2)
    return std::nullopt;
  if (absl::StrCat(Digits(incarnation), "-", number) != name) return std::nullopt;
  return PageFileSet::value_type(incarnation, number);
}

absl::Status RemoveIf(rocksdb::Env* env, const std::string& store,
                      const std::function<bool(const PageFileSet::value_type&)>& is_removed) {
  const std::string directory = PagesDirectory(store);
  std::vector<std::string> names;
  const rocksdb::Status listed = env->GetChildren(directory, &names);
  if (IsGone(listed)) return absl::OkStatus();
  absl::Status removed = FromRocksStatus(listed, absl::StrCat("listing '", directory, "'"));
  for (const std::string& name : names) {
    const std::optional<PageFileSet::value_type> file = ParseName(name);
    if (file.has_value() && is_removed(*file))
      removed.Update(RemoveFile(env, directory + "/" + name));
  }
  return removed;
}

}  // namespace

std::string PagesDirectory(const std::string& store) { return store + "/pages"; }

std::string PageFilePath(const std::string& store, Incarnation incarnation, uint64_t number) {
  return absl::StrCat(PagesDirectory(store), "/", Digits(incarnation), "-", number);
}

void AddPageFiles(const TableRecord& table, PageFileSet& files) {
  for (size_t i = 0; i < table.page_files.size(); ++i)
    files.emplace(table.incarnation, table.first_file + i);
}

absl::StatusOr<std::shared_ptr<const FamilyPages>> OpenPages(
    const std::string& store, const TableRecord& table, bool direct,
    const std::shared_ptr<PageReader>& reader) {
  PageTable::Options options;
  options.incarnation = table.incarnation;
  options.row_bytes = table.spec.row_bytes();
  // The cache holds no larger pages.
  const bool is_cached =
      reader->cache() != nullptr && PageShape::Of(options.row_bytes).page_bytes == kPageBlockBytes;
  options.direct = direct || is_cached;
  for (size_t i = 0; i < table.page_files.size(); ++i) {
    const PageFileRecord& file = table.page_files[i];
    options.parts.push_back({PageFilePath(store, table.incarnation, table.first_file + i),
                             file.row_count, file.first_key, file.last_key});
  }
  auto pages = std::make_shared<FamilyPages>();
  pages->reader = reader;
  HPS_ASSIGN_OR_RETURN(pages->table, PageTable::Open(options, *reader));
  return std::shared_ptr<const FamilyPages>(std::move(pages));
}

bool AnyPageFileIsMissing(const std::string& store, const TableRecord& table) {
  std::error_code error;
  for (size_t i = 0; i < table.page_files.size(); ++i) {
    const std::string path = PageFilePath(store, table.incarnation, table.first_file + i);
    if (!std::filesystem::exists(path, error) && !error) return true;
  }
  return false;
}

absl::Status LinkPageFiles(rocksdb::Env* env, const std::string& store, const TableRecord& table,
                           const std::vector<std::string>& files) {
  HPS_RETURN_IF_ERROR(MakeDirectories(env, PagesDirectory(store)));
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string to = PageFilePath(store, table.incarnation, table.first_file + i);
    HPS_RETURN_IF_ERROR(RemoveFile(env, to));  // of a try that failed
    HPS_FAULT_POINT("l3.pages.before_link");
    HPS_RETURN_IF_ERROR(LinkOrCopyFile(env, files[i], to));
  }
  HPS_FAULT_POINT("l3.pages.before_sync");
  return SyncDirectory(env, PagesDirectory(store));
}

absl::Status RemovePageFiles(rocksdb::Env* env, const std::string& store,
                             const std::set<Incarnation>& incarnations, const PageFileSet& kept) {
  HPS_FAULT_POINT("l3.pages.before_removal");
  return RemoveIf(env, store, [&](const auto& file) {
    return incarnations.contains(file.first) && !kept.contains(file);
  });
}

absl::Status RemoveOtherPageFiles(rocksdb::Env* env, const std::string& store,
                                  const PageFileSet& kept) {
  return RemoveIf(env, store, [&](const auto& file) { return !kept.contains(file); });
}

}  // namespace hps
