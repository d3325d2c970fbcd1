// Random calls from many threads against what the tables are known to hold: both conventions, all
// sizes, unaligned and unknown keys, repeated keys, statuses, and requests that must be refused.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "server/core/test_server_world.h"
#include "testing/trials.h"

namespace hps::server {
namespace {

constexpr size_t kRows = 1000;

struct KnownTable {
  std::string name;
  uint32_t dim;
};
const std::vector<KnownTable> kTables = {{"a", 1}, {"b", 16}, {"c", 33}};

// One thread's calls.
class Caller {
 public:
  Caller(Inference& inference, uint64_t seed) : inference_(inference), random_(seed) {}

  // Each returns false, and says why, when the server answered wrong.
  bool CallByTable();
  bool CallByKeys();
  bool CallWrong();

 private:
  static constexpr size_t kSizes[] = {0, 1, 31, 32, 33, 255, 1024, 1025, 3000};

  // Keys as bytes, unaligned half of the time; they live until the next call.
  std::span<const std::byte> Keys(size_t count) {
    keys_.clear();
    for (size_t i = 0; i < count; ++i) {
      keys_.push_back(random_() % 8 == 0 ? static_cast<Key>(random_())
                                         : static_cast<Key>(random_() % kRows));
    }
    return Store(std::as_bytes(std::span(keys_)));
  }
  std::span<const std::byte> Store(std::span<const std::byte> from) {
    const size_t shift = random_() % 2;
    memory_.push_back(std::make_unique<std::vector<std::byte>>(from.size() + 8));
    if (!from.empty()) std::memcpy(memory_.back()->data() + shift, from.data(), from.size());
    return {memory_.back()->data() + shift, from.size()};
  }
  void Begin() {
    call_.Reset();
    memory_.clear();
    call_.request.model = "m";
  }
  static bool IsRight(const KnownTable& table, Key key, std::span<const std::byte> row) {
    const bool is_there = key >= 0 && key < static_cast<Key>(kRows);
    return is_there ? ServerWorld::IsRow("m/" + table.name, key, 1, row) : ServerWorld::IsZero(row);
  }
  bool Wrong(const std::string& what) {
    ADD_FAILURE() << what;
    return false;
  }

  Inference& inference_;
  std::mt19937_64 random_;
  TestCall call_;
  std::vector<Key> keys_;
  std::vector<std::unique_ptr<std::vector<std::byte>>> memory_;
};

bool Caller::CallByTable() {
  Begin();
  std::vector<std::vector<Key>> asked;
  std::vector<const KnownTable*> tables;
  const bool with_status = random_() % 2 == 0;
  for (const KnownTable& table : kTables) {
    if (random_() % 3 == 0 && !(tables.empty() && &table == &kTables.back())) continue;
    const size_t count = kSizes[random_() % std::size(kSizes)];
    const auto bytes = Keys(count);
    asked.push_back(keys_);
    tables.push_back(&table);
    const auto n = static_cast<int64_t>(count);
    const bool matrix = random_() % 2 == 0;
    call_.AddTensor(table.name, random_() % 2 == 0 ? Datatype::kInt64 : Datatype::kUint64,
                    matrix ? std::vector<int64_t>{1, n} : std::vector<int64_t>{n}, bytes);
  }
  std::vector<std::string> statuses;
  for (const KnownTable* table : tables) statuses.push_back(table->name + ".status");
  for (size_t i = 0; with_status && i < tables.size(); ++i) {
    call_.request.output_names.emplace_back(tables[i]->name);
    call_.request.output_names.emplace_back(statuses[i]);
  }
  if (absl::Status status = call_.Answer(inference_); !status.ok()) return Wrong(status.ToString());
  for (size_t t = 0; t < tables.size(); ++t) {
    const size_t output = with_status ? 2 * t : t;
    const size_t row_bytes = tables[t]->dim * sizeof(float);
    if (call_.bytes(output).size() != asked[t].size() * row_bytes) return Wrong("size");
    for (size_t i = 0; i < asked[t].size(); ++i) {
      if (!IsRight(*tables[t], asked[t][i], call_.bytes(output).subspan(i * row_bytes, row_bytes)))
        return Wrong("row " + std::to_string(asked[t][i]) + " of " + tables[t]->name);
      if (!with_status) continue;
      const bool is_there = asked[t][i] >= 0 && asked[t][i] < static_cast<Key>(kRows);
      if ((call_.bytes(output + 1)[i] != std::byte{0}) != is_there) return Wrong("status");
    }
  }
  return true;
}

bool Caller::CallByKeys() {
  Begin();
  std::vector<int32_t> counts;
  size_t total = 0;
  for (size_t t = 0; t < kTables.size(); ++t) {
    counts.push_back(static_cast<int32_t>(kSizes[random_() % std::size(kSizes)]));
    total += static_cast<size_t>(counts.back());
  }
  call_.AddTensor("KEYS", Datatype::kInt64, {1, static_cast<int64_t>(total)}, Keys(total));
  call_.AddTensor("NUMKEYS", Datatype::kInt32, {1, std::ssize(counts)},
                  Store(std::as_bytes(std::span(counts))));
  if (absl::Status status = call_.Answer(inference_); !status.ok()) return Wrong(status.ToString());
  size_t next = 0;
  size_t offset = 0;
  for (size_t t = 0; t < kTables.size(); ++t) {
    const size_t row_bytes = kTables[t].dim * sizeof(float);
    for (int32_t i = 0; i < counts[t]; ++i, ++next, offset += row_bytes) {
      if (!IsRight(kTables[t], keys_[next], call_.bytes(0).subspan(offset, row_bytes)))
        return Wrong("row " + std::to_string(keys_[next]) + " of " + kTables[t].name);
    }
  }
  return offset == call_.bytes(0).size() || Wrong("size of OUTPUT0");
}

bool Caller::CallWrong() {
  Begin();
  const auto bytes = Keys(4);
  switch (random_() % 4) {
    case 0:
      call_.AddTensor("a", Datatype::kInt64, {5}, bytes);
      break;
    case 1:
      call_.AddTensor("d", Datatype::kInt64, {4}, bytes);
      break;
    case 2:
      call_.AddTensor("a", Datatype::kFp64, {4}, bytes);
      break;
    default:
      call_.request.model = "o";
      call_.AddTensor("a", Datatype::kInt64, {4}, bytes);
  }
  return !call_.Answer(inference_).ok() || Wrong("a wrong request was answered");
}

TEST(RandomCallsTest, EveryRowIsRight) {
  const uint64_t seed = TestSeed();
  ServerWorld world;
  world.config().server.batch_keys_max = 2048;  // so that some are cut and some go together
  std::vector<ServerWorld::Table> tables;
  for (const KnownTable& table : kTables) tables.push_back({"m/" + table.name, kRows, table.dim});
  world.ImportAll(tables);
  world.Start();
  constexpr int kThreads = 6;
  const uint64_t calls = 10 * Trials(20);
  std::atomic<uint64_t> right = 0;
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      Caller caller(world.inference(), seed + i);
      for (uint64_t call = 0; call < calls; ++call) {
        const bool ok = call % 10 == 9  ? caller.CallWrong()
                        : call % 2 == 0 ? caller.CallByTable()
                                        : caller.CallByKeys();
        if (!ok) return;
        ++right;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, kThreads * calls);
  EXPECT_EQ(world.core().Snapshot().models.at(0).requests, kThreads * calls * 9 / 10);
  EXPECT_EQ(world.core().engine().admission().calls_in_flight(), 0u);
}

}  // namespace
}  // namespace hps::server
