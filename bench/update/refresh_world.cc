#include "bench/update/refresh_world.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <span>
#include <thread>
#include <utility>

#include "base/limits.h"
#include "base/macros.h"
#include "bench/scratch.h"
#include "bench/update/staging_table.h"
#include "l2_memory/memory_tier.h"
#include "l3_rocksdb/rocks_store.h"

namespace hps::bench {
namespace {

constexpr char kModel[] = "m";
constexpr char kTable[] = "m/t";
constexpr size_t kBatchRows = 32'768;  // of inserts and changes: 16 MiB

const TableSpec& Spec() {
  static const TableSpec spec{.name = kTable, .dim = RefreshWorld::kDim};
  return spec;
}

HostRows View(std::span<std::byte> rows) {
  return {.data = rows.data(),
          .row_count = rows.size() / RefreshWorld::kRowBytes,
          .row_bytes = RefreshWorld::kRowBytes,
          .stride_bytes = RefreshWorld::kRowBytes};
}

}  // namespace

absl::StatusOr<std::unique_ptr<RefreshWorld>> RefreshWorld::Create(const Setting& setting) {
  auto world = std::unique_ptr<RefreshWorld>(new RefreshWorld(setting));
  world->changed_keys_.resize(setting.changed);
  std::iota(world->changed_keys_.begin(), world->changed_keys_.end(), Key{0});
  HPS_RETURN_IF_ERROR(world->MakeStore());
  std::shuffle(world->changed_keys_.begin(), world->changed_keys_.end(), std::mt19937_64(1));
  HPS_RETURN_IF_ERROR(world->Serve());
  return world;
}

RefreshWorld::~RefreshWorld() {
  session_.reset();
  applier_.reset();
  fetch_.reset();
  promote_.reset();
  table_.reset();
  registry_.reset();
  store_.reset();
  RemoveScratch(setting_.directory);
}

std::span<std::byte> RefreshWorld::RowsOf(size_t count, float value) {
  rows_.resize(kBatchRows * kRowBytes);
  for (size_t i = 0; i < count; ++i) std::memcpy(&rows_[i * kRowBytes], &value, sizeof(value));
  return std::span(rows_).first(count * kRowBytes);
}

absl::Status RefreshWorld::MakeStore() {
  RemoveScratch(setting_.directory);
  HPS_RETURN_IF_ERROR(MakeScratch(setting_.directory));
  StoreConfig config;
  config.path = setting_.directory + "/store";
  HPS_ASSIGN_OR_RETURN(store_, OpenRocksStore({.config = config, .mode = OpenMode::kCreate}));
  HPS_ASSIGN_OR_RETURN(const auto import, store_->BeginImport({&Spec(), 1}));
  for (size_t first = 0; first < changed_keys_.size(); first += kBatchRows) {
    const auto keys =
        std::span(changed_keys_).subspan(first, std::min(kBatchRows, changed_keys_.size() - first));
    HPS_RETURN_IF_ERROR(import->Add(0, 0, keys, View(RowsOf(keys.size(), 0))));
  }
  return import->Commit().status();
}

absl::Status RefreshWorld::Serve() {
  const size_t threads = std::max(1U, std::thread::hardware_concurrency());
  HPS_ASSIGN_OR_RETURN(fetch_, WorkerPool::Create({.name = "fetch", .thread_count = threads}));
  HPS_ASSIGN_OR_RETURN(promote_, WorkerPool::Create({.name = "promote", .thread_count = threads}));
  SessionFactory::Options options;
  options.fetch_executor = fetch_.get();
  options.promote_executor = promote_.get();
  if (setting_.cache != nullptr) options.caches = {setting_.cache};
  HPS_ASSIGN_OR_RETURN(factory_, SessionFactory::Create(options));
  registry_ = std::make_unique<ModelRegistry>(factory_->epoch_domain(), *promote_);
  helpers_ = L1Refresh::Helpers(threads);
  teams_ = std::make_unique<ForkJoinPool>(ForkJoinPool::Options{
      .executor = fetch_.get(), .helpers_max = helpers_, .spin = options.helper_spin});
  HPS_RETURN_IF_ERROR(MakeTable());
  LiveModel& model = registry_->FindOrAdd(kModel);
  HPS_RETURN_IF_ERROR(model.Publish({table_}));
  applier_ = std::make_unique<TableApplier>(kTable, *registry_, *store_, nullptr, teams_.get());
  if (setting_.cache == nullptr) return absl::OkStatus();
  HPS_ASSIGN_OR_RETURN(session_, factory_->NewSession(model, {.device = setting_.cache->device()}));
  return absl::OkStatus();
}

absl::Status RefreshWorld::MakeTable() {
  const MemoryTierOptions l2_options;
  tier_ = MakeMemoryTier(l2_options);
  LiveTable::Parts parts;
  HPS_ASSIGN_OR_RETURN(parts.l3, store_->OpenTable(kTable));
  const uint64_t capacity = setting_.rows + setting_.rows / 4;  // no partition is too small
  HPS_ASSIGN_OR_RETURN(std::unique_ptr<LossyTable> l2,
                       tier_->OpenTable(Spec(), parts.l3->incarnation(),
                                        MemoryTierBytesFor(capacity, kRowBytes, l2_options)));
  parts.l2.push_back({.table = std::move(l2)});
  table_ = std::make_shared<LiveTable>(std::move(parts));
  if (setting_.cache == nullptr) {
    table_->AttachL1(0, std::make_unique<StagingTable>(kRowBytes, setting_.rows));
  } else {
    const uint64_t bytes = setting_.cache->TableBytes(kRowBytes, setting_.rows);
    HPS_ASSIGN_OR_RETURN(auto l1, setting_.cache->OpenTable(kRowBytes, bytes));
    table_->AttachL1(0, std::move(l1));
  }
  for (uint64_t first = 0; first < setting_.rows; first += kBatchRows) {
    HPS_RETURN_IF_ERROR(
        Insert(static_cast<Key>(first), std::min<uint64_t>(kBatchRows, setting_.rows - first)));
  }
  return table_->l1(0)->Flush(kNoDeadline);
}

absl::Status RefreshWorld::Insert(Key first, size_t count) {
  std::vector<Key> keys(count);
  std::iota(keys.begin(), keys.end(), first);
  const RowBatch batch = {.keys = keys, .rows = View(RowsOf(count, 0))};
  HPS_RETURN_IF_ERROR(table_->l2()[0].table().Insert(batch, 0).status());
  absl::Status inserted = table_->l1(0)->InsertIfAbsent(batch, 0).status();
  if (absl::IsResourceExhausted(inserted)) {  // the writer's staging is full
    HPS_RETURN_IF_ERROR(table_->l1(0)->Flush(kNoDeadline));
    inserted = table_->l1(0)->InsertIfAbsent(batch, 0).status();
  }
  return inserted;
}

absl::Status RefreshWorld::Change(float value) {
  for (size_t first = 0; first < changed_keys_.size(); first += kBatchRows) {
    const auto keys = std::span<const Key>(changed_keys_)
                          .subspan(first, std::min(kBatchRows, changed_keys_.size() - first));
    const StreamPosition position = {.offset = ++offset_ + 1};
    const std::vector<Version> versions(keys.size(), VersionAt(0, offset_));
    const DurableWrite write = {
        .upserts = {.keys = keys, .rows = View(RowsOf(keys.size(), value)), .versions = versions},
        .positions = {&position, 1}};
    HPS_RETURN_IF_ERROR(applier_->ApplyStream(
        {.incarnation = table_->l3().incarnation(), .write = write}, kNoDeadline));
  }
  return absl::OkStatus();
}

}  // namespace hps::bench
