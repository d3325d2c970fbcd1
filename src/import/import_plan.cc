#include "import/import_plan.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "base/unix_time.h"
#include "import/foreign_database.h"
#include "import/formats/memory_table.h"
#include "import/table_listing.h"
#include "types/names.h"

namespace hps {

std::vector<TableSpec> ImportPlan::specs() const {
  std::vector<TableSpec> specs;
  for (const ImportSource& table : tables) specs.push_back(table.spec);
  return specs;
}

std::string ImportPlan::model() const { return ModelOf(tables.front().spec.name); }

absl::StatusOr<ImportPlan> PlanImport(const ImportRequest& request,
                                      const ForeignStoreOpener& opener,
                                      std::span<const TableSource> tables) {
  ImportPlan plan{.tables = {},
                  .begin = {.kind = UpdateStart::Kind::kTime, .time_ms = UnixMilliseconds()}};
  HPS_ASSIGN_OR_RETURN(const std::shared_ptr<ForeignStore> store,
                       OpenForeignDatabase(request, opener));
  const bool in_memory = request.memory.has_value();
  if (in_memory || request.name.find('/') != std::string::npos) {
    const std::string path = in_memory ? kMemoryTablePath : request.from;
    HPS_ASSIGN_OR_RETURN(ImportSource source,
                         ImportSource::Create(request, request.name, path, store));
    plan.tables.push_back(std::move(source));
    return plan;
  }
  // Checks the model's name, with a placeholder for the table, before any file is opened.
  HPS_RETURN_IF_ERROR(ValidateTableName(request.name + "/t"));
  HPS_ASSIGN_OR_RETURN(const std::vector<TableSource> listed,
                       ListTables(request, store.get(), tables));
  for (const TableSource& table : listed) {
    const std::string name = absl::StrCat(request.name, "/", table.name);
    if (const absl::Status status = ValidateTableName(name); !status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(
          table.from, ": ", status.message(),
          "; rename it, take it out of the directory, or import it alone as MODEL/TABLE"));
    }
    ImportRequest one = request;
    if (table.dim.has_value()) one.dim = table.dim;
    one.default_value = table.default_value.value_or(request.default_value);
    HPS_ASSIGN_OR_RETURN(ImportSource source, ImportSource::Create(one, name, table.from, store));
    plan.tables.push_back(std::move(source));
  }
  return plan;
}

}  // namespace hps
