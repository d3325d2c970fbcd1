#include "node/device_level.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/limits.h"
#include "base/logging.h"
#include "base/macros.h"
#include "base/server_threads.h"
#include "import/formats/npy_files.h"
#include "node/auto_budgets.h"
#include "node/budget.h"
#include "node/preload.h"
#include "types/names.h"

namespace hps {
namespace {

// Most keys that are copied from an old incarnation: 128 MiB.
constexpr size_t kHotKeysMax = size_t{16} << 20;
constexpr size_t kDumpKeys = size_t{64} << 10;
constexpr size_t kTrialRowBytes = 512;
constexpr auto kDumpTimeout = std::chrono::seconds(10);

std::string PartOf(const LiveTable& table, const DeviceCache& cache) {
  return absl::StrCat("table '", table.spec().name, "' on device ", cache.device());
}

// Concurrent lookups per device; a server divides its own evenly among the devices.
size_t CallsMax(const Config& config, bool is_server, size_t device_count) {
  if (config.l1.calls_max != 0) return config.l1.calls_max;
  if (!is_server || device_count == 0) return kDeviceCallsMin;
  const size_t lookups = (LookupSlots(config.server) + device_count - 1) / device_count;
  return std::clamp(lookups, kDeviceCallsMin, kDeviceCallsMax);
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
    const Config& config, const Options& options, const DeviceCacheFactory& factory) {
  std::unique_ptr<DeviceLevel> level(new DeviceLevel(config, options));
  HPS_RETURN_IF_ERROR(level->Open(factory));
  return level;
}

absl::Status DeviceLevel::Open(const DeviceCacheFactory& factory) {
  const L1Config& l1 = config_.l1;
  std::vector<int> devices = l1.devices;
  if (l1.devices_auto) {
    absl::StatusOr<std::vector<int>> found = factory.Devices();
    devices_status_ = found.status();
    devices = found.ok() ? *std::move(found) : std::vector<int>();
    if (devices.size() > kCachesMax) devices.resize(kCachesMax);
  }
  device_count_ = devices.size();
  if (const absl::Status made = MakeCaches(factory, devices); !made.ok())
    return absl::Status(made.code(), absl::StrCat("l1.devices: ", made.message()));
  NoteBytesLeft(factory);
  for (const auto& cache : caches_) {
    healths_.push_back(std::make_unique<DeviceHealth>(cache->device(), [this] { PostAttach(); }));
  }
  if (caches_.empty()) {
    if (devices_status_.ok()) devices_status_ = factory.Support();
    return absl::OkStatus();
  }
  // Two tasks, each at most once in the queue.
  HPS_ASSIGN_OR_RETURN(executor_, WorkerPool::Create({.name = "hps-l1-fill", .queue_max = 2}));
  if (config_.l2.pinned_bytes_max > 0) {
    l2_pinner_ = std::make_unique<L2Pinner>(caches(), config_.l2.pinned_bytes_max, *executor_);
  }
  return absl::OkStatus();
}

// The lookups are divided among the devices that are there in the end, and an automatic budget is
// for the one of them that has least memory: where some had to be left out, the others are opened
// again with more.
absl::Status DeviceLevel::MakeCaches(const DeviceCacheFactory& factory,
                                     std::span<const int> devices) {
  std::vector<size_t> calls = {CallsMax(config_, options_.is_server, devices.size())};
  if (config_.l1.calls_max == 0 && calls.front() > kDeviceCallsMin)
    calls.push_back(kDeviceCallsMin);
  for (const int device : devices) HPS_RETURN_IF_ERROR(MakeCache(factory, device, calls));
  if (caches_.empty() || caches_.size() == devices.size()) return absl::OkStatus();
  const size_t calls_of_kept = CallsMax(config_, options_.is_server, caches_.size());
  if (calls_of_kept <= calls.front() && !options_.is_auto_budget) return absl::OkStatus();
  if (calls_of_kept > calls.front()) calls.insert(calls.begin(), calls_of_kept);
  std::vector<int> kept;
  for (const auto& cache : caches_) kept.push_back(cache->device());
  caches_.clear();
  if (options_.is_auto_budget) bytes_max_ = std::max(bytes_max_, AutoL1Bytes(kept, factory));
  for (const int device : kept) HPS_RETURN_IF_ERROR(MakeCache(factory, device, calls));
  return absl::OkStatus();
}

void DeviceLevel::NoteBytesLeft(const DeviceCacheFactory& factory) {
  for (const auto& cache : caches_) {
    const absl::StatusOr<DeviceMemory> memory = factory.Memory(cache->device());
    if (!memory.ok()) continue;
    bytes_left_[cache->device()] = memory->free_bytes - std::min(memory->free_bytes, bytes_max_);
  }
}

uint64_t DeviceLevel::BytesLeftOn(int device) const {
  const auto found = bytes_left_.find(device);
  return found == bytes_left_.end() ? UINT64_MAX : found->second;
}

absl::Status DeviceLevel::MakeCache(const DeviceCacheFactory& factory, int device,
                                    std::span<const size_t> calls_max) {
  const L1Config& l1 = config_.l1;
  const uint64_t staging_growth = StagingGrowthMax(factory, device, device_count_);
  const auto make = [&](size_t calls) {
    return factory.Make({.device = device,
                         .bytes_max = bytes_max_,
                         .calls_max = calls,
                         .call_keys_max = l1.call_keys_max,
                         .call_staging_bytes = l1.call_staging_bytes,
                         .staging_growth_bytes_max = staging_growth});
  };
  auto cache = make(calls_max.front());
  for (; calls_max.size() > 1; calls_max = calls_max.subspan(1)) {
    if (cache.ok()) {
      // Tables have priority over calls, but allocate later: check that they would fit.
      const absl::Status room = (*cache)->OpenTable(kTrialRowBytes, bytes_max_).status();
      if (absl::IsResourceExhausted(room)) cache = room;
    }
    if (!absl::IsResourceExhausted(cache.status())) break;
    LogWarning(absl::StrCat("device ", device, ": not enough memory for ", calls_max[0],
                            " concurrent lookups, using ", calls_max[1], ": ",
                            cache.status().ToString()));
    cache = make(calls_max[1]);
  }
  if (cache.ok()) {
    caches_.push_back(*std::move(cache));
  } else if (l1.devices_auto) {
    LogWarning(absl::StrCat("device ", device, " is not used: ", cache.status().ToString()));
    skipped_.emplace(device, cache.status());
  } else {
    return cache.status();
  }
  return absl::OkStatus();
}

// The executor is the last member, so it is destroyed first. Resetting it here would be a race: its
// thread may still use the pointer, which reset() clears before the thread has ended.
DeviceLevel::~DeviceLevel() { closing_.store(true); }

std::vector<DeviceCache*> DeviceLevel::caches() const {
  std::vector<DeviceCache*> all;
  for (const auto& cache : caches_) all.push_back(cache.get());
  return all;
}

std::vector<DeviceHealth*> DeviceLevel::healths() const {
  std::vector<DeviceHealth*> all;
  for (const auto& health : healths_) all.push_back(health.get());
  return all;
}

std::vector<DeviceState> DeviceLevel::States() const {
  std::vector<DeviceState> states;
  for (const auto& health : healths_)
    states.push_back({.device = health->device(), .up = health->is_up()});
  for (const auto& [device, why] : skipped_) states.push_back({.device = device, .up = false});
  return states;
}

absl::Status DeviceLevel::CheckDevice(int device) const {
  if (device == -1) return absl::OkStatus();
  for (const auto& cache : caches_) {
    if (cache->device() == device) return absl::OkStatus();
  }
  absl::Status reason = absl::UnavailableError("not in l1.devices, or not present");
  if (!devices_status_.ok()) reason = devices_status_;
  if (const auto found = skipped_.find(device); found != skipped_.end()) reason = found->second;
  return absl::Status(reason.code(), absl::StrCat("device ", device, ": ", reason.message()));
}

std::vector<uint64_t> DeviceLevel::Divide(std::span<const Demand> demands,
                                          std::span<const LiveTable* const> replaced) const {
  if (caches_.empty()) return std::vector<uint64_t>(demands.size(), 0);
  std::vector<BudgetRequest> requests;
  for (const Demand& demand : demands) {
    const size_t row_bytes = demand.spec.row_bytes();
    BudgetRequest& request = requests.emplace_back();
    request.least_bytes = caches_.front()->TableBytes(row_bytes, 1);
    const uint64_t bytes = caches_.front()->TableBytes(row_bytes, demand.row_count);
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
                    .bytes_max = bytes_max_,
                    .bytes_left = bytes_max_};
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
  if (caches_.empty()) return table;
  LiveTable* const tracked = table.get();
  // The deleter destroys the inner pointer after the budget has been returned.
  return {tracked, [this, table = std::move(table)](LiveTable* ended) mutable {
            Forget(ended);
            table = nullptr;
            PostAttach();
          }};
}

void DeviceLevel::Adopt(const Adoption& adoption) {
  if (adoption.bytes == 0 || caches_.empty()) return;
  LiveTable& table = *adoption.table;
  {
    MutexLock lock(mutex_);
    granted_[&table] = adoption.bytes;
  }
  for (size_t cache = 0; cache < caches_.size(); ++cache) {
    std::vector<Key> keys = KeysFor(adoption, cache);
    const absl::Status attached = Attach(table, cache, adoption.bytes);
    if (attached.ok()) {
      Fill(table, cache, keys);
      if (adoption.former == nullptr) Preload(table, cache);
      continue;
    }
    // Memory becomes free when the replaced table is destroyed.
    const std::string line =
        absl::StrCat(PartOf(table, *caches_[cache]),
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
        healths_[cache]->is_up() && !adoption.former->l1_health(cache).needs_clearing();
    if (l1 != nullptr && answers) keys = KeysHeld(*l1);
    NoteWait(cache, keys.status());
  } else if (!adoption.hot_keys_path.empty()) {
    keys = ReadNpyKeys(adoption.hot_keys_path);
    // Drop the coldest keys, which come last: inserted last, they would evict the hottest.
    const size_t room =
        RowsThatFit(adoption.bytes, adoption.table->row_bytes(), NeedIn(*caches_[cache]));
    if (keys.ok() && keys->size() > room) keys->resize(room);
  }
  if (keys.ok()) return *std::move(keys);
  LogWarning(absl::StrCat(PartOf(*adoption.table, *caches_[cache]),
                          " is not filled with hot keys: ", keys.status().ToString()));
  return {};
}

bool DeviceLevel::MayFill(const LiveTable& table) const {
  return filling_.load(std::memory_order_relaxed) && !closing_.load() && !table.retired();
}

void DeviceLevel::Preload(LiveTable& table, size_t cache) const {
  if (!healths_[cache]->is_up()) return;
  const absl::StatusOr<uint64_t> rows =
      PreloadDeviceTable(table, cache, config_.l1.preload, [&] { return MayFill(table); });
  if (rows.ok()) return;
  LogWarning(absl::StrCat("preload of ", PartOf(table, *caches_[cache]),
                          " ended early: ", rows.status().ToString()));
}

absl::Status DeviceLevel::Attach(LiveTable& table, size_t cache, uint64_t bytes) {
  if (!healths_[cache]->is_up()) return absl::UnavailableError("the device does not answer");
  auto opened = caches_[cache]->OpenTable(table.row_bytes(), bytes);
  NoteWait(cache, opened.status());
  HPS_RETURN_IF_ERROR(opened.status());
  table.AttachL1(cache, *std::move(opened), caches_[cache]->device());
  return absl::OkStatus();
}

// Who waited for the device in vain spares the next one that.
void DeviceLevel::NoteWait(size_t cache, const absl::Status& status) const {
  if (absl::IsDeadlineExceeded(status)) healths_[cache]->NoteFailure(RealClock().Now(), status);
}

void DeviceLevel::Fill(LiveTable& table, size_t cache, std::span<const Key> keys) const {
  const absl::StatusOr<uint64_t> rows =
      FillDeviceTable(table, cache, keys, [&] { return MayFill(table); });
  if (rows.ok()) return;
  LogWarning(absl::StrCat("filling ", PartOf(table, *caches_[cache]),
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

void DeviceLevel::NameDevices(std::span<TableStatistics> tables) const {
  for (TableStatistics& table : tables) {
    for (DeviceStatistics& device : table.l1_devices)
      device.device = caches_[static_cast<size_t>(device.device)]->device();
  }
}

}  // namespace hps
