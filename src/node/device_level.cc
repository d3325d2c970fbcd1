#include "node/device_level.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "base/macros.h"
#include "import/formats/npy_files.h"
#include "node/budget.h"
#include "node/preload.h"
#include "types/names.h"

namespace hps {
namespace {

// Most keys that are copied from an old incarnation: 128 MiB.
constexpr size_t kHotKeysMax = size_t{16} << 20;
constexpr size_t kDumpKeys = size_t{64} << 10;
constexpr auto kDumpTimeout = std::chrono::seconds(10);

std::string PartOf(const LiveTable& table, const DeviceCache& cache) {
  return absl::StrCat("table '", table.spec().name, "' on device ", cache.device());
}

// The memory need of rows in a cache, as RowsThatFit takes it.
auto NeedIn(const DeviceCache& cache) {
  return [&cache](uint64_t row_count, size_t row_bytes) {
    return cache.TableBytes(row_bytes, row_count);
  };
}

// The keys that a table has in level 1; all of them were looked up recently.
absl::StatusOr<std::vector<Key>> KeysHeld(DeviceCacheTable& table) {
  std::vector<Key> held;
  std::vector<Key> some(kDumpKeys);
  uint64_t cursor = 0;
  while (held.size() < kHotKeysMax) {
    HPS_ASSIGN_OR_RETURN(const size_t count,
                         table.Dump(&cursor, some, DeadlineAfter(RealClock(), kDumpTimeout)));
    if (count == 0) break;
    held.insert(held.end(), some.begin(), some.begin() + static_cast<ptrdiff_t>(count));
  }
  return held;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceLevel>> DeviceLevel::Create(
    const Config& config, const DeviceCaches::Options& options, const DeviceCacheFactory& factory) {
  std::unique_ptr<DeviceLevel> level(new DeviceLevel(config));
  HPS_ASSIGN_OR_RETURN(
      level->devices_,
      DeviceCaches::Create(config, options, factory, [raw = level.get()] { raw->PostAttach(); }));
  if (level->devices_->size() == 0) return level;
  // Two tasks, each at most once in the queue.
  HPS_ASSIGN_OR_RETURN(level->executor_,
                       WorkerPool::Create({.name = "hps-l1-fill", .queue_max = 2}));
  if (config.l2.pinned_bytes_max > 0) {
    level->l2_pinner_ = std::make_unique<L2Pinner>(level->devices_->caches(),
                                                   config.l2.pinned_bytes_max, *level->executor_);
  }
  return level;
}

// The executor is the last member, so it is destroyed first. Resetting it here would be a race: its
// thread may still use the pointer, which reset() clears before the thread has ended.
DeviceLevel::~DeviceLevel() { closing_.store(true); }

std::vector<uint64_t> DeviceLevel::Divide(std::span<const Demand> demands,
                                          std::span<const LiveTable* const> replaced) const {
  if (devices_->size() == 0) return std::vector<uint64_t>(demands.size(), 0);
  std::vector<BudgetRequest> requests;
  for (const Demand& demand : demands) {
    const size_t row_bytes = demand.spec.row_bytes();
    BudgetRequest& request = requests.emplace_back();
    request.least_bytes = devices_->cache(0).TableBytes(row_bytes, 1);
    const uint64_t bytes = devices_->cache(0).TableBytes(row_bytes, demand.row_count);
    request.needed_bytes =
        std::max(request.least_bytes, NeedOf(bytes, demand.row_count, row_bytes));
    request.share = demand.share;
    request.fixed_bytes = demand.fixed_bytes;
    request.table = demand.spec.name;
    request.waits = demand.waits;
  }
  LevelRoom room = {.level = "level 1",
                    .setting = "l1.bytes_max",
                    .without = "is served without level 1",
                    .bytes_max = devices_->bytes_max(),
                    .bytes_left = devices_->bytes_max()};
  {
    MutexLock lock(mutex_);
    for (const auto& [table, bytes] : granted_) {
      const bool leaves = std::find(replaced.begin(), replaced.end(), table) != replaced.end();
      if (leaves || table->retired()) continue;
      room.bytes_left -= std::min(bytes, room.bytes_left);
      room.holders.insert(ModelOf(table->spec().name));
    }
  }
  return DivideRoom(room, requests);
}

std::shared_ptr<LiveTable> DeviceLevel::Tracked(std::shared_ptr<LiveTable> table) {
  if (devices_->size() == 0) return table;
  LiveTable* const tracked = table.get();
  // The deleter destroys the inner pointer after the budget has been returned.
  return {tracked, [this, table = std::move(table)](LiveTable* ended) mutable {
            Forget(ended);
            table = nullptr;
            PostAttach();
          }};
}

void DeviceLevel::Adopt(const Adoption& adoption) {
  if (adoption.bytes == 0 || devices_->size() == 0) return;
  LiveTable& table = *adoption.table;
  {
    MutexLock lock(mutex_);
    granted_[&table] = adoption.bytes;
  }
  for (size_t cache = 0; cache < devices_->size(); ++cache) {
    std::vector<Key> keys = KeysFor(adoption, cache);
    const absl::Status attached = Attach(table, cache, adoption.bytes);
    if (attached.ok()) {
      Fill(table, cache, keys);
      if (adoption.former == nullptr) Preload(table, cache);
      continue;
    }
    // Memory becomes free when the replaced table is destroyed.
    const std::string line =
        absl::StrCat(PartOf(table, devices_->cache(cache)),
                     " waits for the device's memory, or for its answer: ", attached.ToString());
    adoption.former != nullptr ? LogInfo(line) : LogWarning(line);
    MutexLock lock(mutex_);
    pending_.push_back({.table = adoption.table,
                        .cache = cache,
                        .bytes = adoption.bytes,
                        .keys = std::move(keys),
                        .preload = adoption.former == nullptr});
  }
  PostAttach();  // memory may have become free in the meantime
}

std::vector<Key> DeviceLevel::KeysFor(const Adoption& adoption, size_t cache) const {
  absl::StatusOr<std::vector<Key>> keys = std::vector<Key>();
  if (adoption.former != nullptr) {
    // From a device that does not answer each part of the keys would be waited for in vain.
    DeviceCacheTable* const l1 = adoption.former->l1(cache);
    const bool answers =
        devices_->health(cache).is_up() && !adoption.former->l1_health(cache).needs_clearing();
    if (l1 != nullptr && answers) keys = KeysHeld(*l1);
    NoteWait(cache, keys.status());
  } else if (!adoption.hot_keys_path.empty()) {
    keys = ReadNpyKeys(adoption.hot_keys_path);
    // Drop the coldest keys, which come last: inserted last, they would evict the hottest.
    const size_t room =
        RowsThatFit(adoption.bytes, adoption.table->row_bytes(), NeedIn(devices_->cache(cache)));
    if (keys.ok() && keys->size() > room) keys->resize(room);
  }
  if (keys.ok()) return *std::move(keys);
  LogWarning(absl::StrCat(PartOf(*adoption.table, devices_->cache(cache)),
                          " is not filled with hot keys: ", keys.status().ToString()));
  return {};
}

bool DeviceLevel::MayFill(const LiveTable& table) const {
  return filling_.load(std::memory_order_relaxed) && !closing_.load() && !table.retired();
}

void DeviceLevel::Preload(LiveTable& table, size_t cache) const {
  if (!devices_->health(cache).is_up()) return;
  const absl::StatusOr<uint64_t> rows =
      PreloadDeviceTable(table, cache, config_.l1.preload, [&] { return MayFill(table); });
  if (rows.ok()) return;
  LogWarning(absl::StrCat("preload of ", PartOf(table, devices_->cache(cache)),
                          " ended early: ", rows.status().ToString()));
}

absl::Status DeviceLevel::Attach(LiveTable& table, size_t cache, uint64_t bytes) {
  if (!devices_->health(cache).is_up()) return absl::UnavailableError("the device does not answer");
  auto opened = devices_->cache(cache).OpenTable(table.row_bytes(), bytes);
  NoteWait(cache, opened.status());
  HPS_RETURN_IF_ERROR(opened.status());
  table.AttachL1(cache, *std::move(opened), devices_->cache(cache).device());
  return absl::OkStatus();
}

// Who waited for the device in vain spares the next one that.
void DeviceLevel::NoteWait(size_t cache, const absl::Status& status) const {
  if (absl::IsDeadlineExceeded(status))
    devices_->health(cache).NoteFailure(RealClock().Now(), status);
}

void DeviceLevel::Fill(LiveTable& table, size_t cache, std::span<const Key> keys) const {
  const absl::StatusOr<uint64_t> rows =
      FillDeviceTable(table, cache, keys, [&] { return MayFill(table); });
  if (rows.ok()) return;
  LogWarning(absl::StrCat("filling ", PartOf(table, devices_->cache(cache)),
                          " ended early: ", rows.status().ToString()));
}

void DeviceLevel::Forget(const LiveTable* table) {
  MutexLock lock(mutex_);
  granted_.erase(table);
}

void DeviceLevel::PostAttach() {
  if (closing_.load() || attach_posted_.exchange(true)) return;
  if (!executor_->Post(&attach_task_).ok()) attach_posted_.store(false);
}

void DeviceLevel::AttachPending() {
  // Cleared first: a table that is destroyed from now on posts the task again.
  attach_posted_.store(false);
  std::vector<PendingTable> pending;
  {
    MutexLock lock(mutex_);
    pending.swap(pending_);
  }
  std::vector<std::pair<std::shared_ptr<LiveTable>, PendingTable>> attached;
  for (PendingTable& part : pending) {
    std::shared_ptr<LiveTable> table = part.table.lock();
    if (table == nullptr || table->retired() || closing_.load()) continue;
    if (Attach(*table, part.cache, part.bytes).ok()) {
      attached.emplace_back(std::move(table), std::move(part));
      continue;
    }
    MutexLock lock(mutex_);
    pending_.push_back(std::move(part));
  }
  for (auto& [table, part] : attached) {
    Fill(*table, part.cache, part.keys);
    if (part.preload) Preload(*table, part.cache);
    table = nullptr;  // may be the last reference, whose end frees memory for other tables
  }
}

}  // namespace hps
