#include "train_cpu/locked_shard.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "testing/contracts/embedding_shard_contract.h"
#include "train_cpu/host_shard.h"

namespace hps {
namespace {

absl::StatusOr<std::unique_ptr<EmbeddingShard>> CreateLocked(const ShardOptions& options) {
  auto shard = HostShard::Create(options);
  if (!shard.ok()) return shard.status();
  return std::make_unique<LockedShard>(*std::move(shard));
}

INSTANTIATE_TEST_SUITE_P(Locked, EmbeddingShardContract,
                         ::testing::Values(EmbeddingShardFactory{"host", CreateLocked}),
                         EmbeddingShardName);

// One thread trains, the other publishes; between them they lose no row.
TEST(LockedShard, IsUsedByTwoThreads) {
  const auto shard = *CreateLocked({.name = "m/t", .dim = 2, .expire_after = 3});
  std::atomic<bool> is_over{false};
  std::set<Key> published;
  std::thread reader([&] {
    while (!is_over.load()) {
      const ShardDelta delta = *shard->CollectDelta(DeltaReader::kPublication);
      for (const Key key : delta.erased) published.erase(key);
      published.insert(delta.changed.keys.begin(), delta.changed.keys.end());
      shard->AcknowledgeDelta(DeltaReader::kPublication, delta.through);
    }
  });
  const auto step = shard->NewStep();
  std::vector<Key> keys(500);
  std::vector<float> values(keys.size() * 2);
  for (Key s = 0; s < 200; ++s) {
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = s * 100 + static_cast<Key>(i);
    ASSERT_TRUE(ForwardOne(*shard, {.keys = keys}, step.get(), values).ok());
    ASSERT_TRUE(BackwardOne(*shard, *step, values, {.learning_rate = 1}).ok());
  }
  is_over.store(true);
  reader.join();
  const ShardDelta last = *shard->CollectDelta(DeltaReader::kPublication);
  for (const Key key : last.erased) EXPECT_EQ(published.erase(key), 1U);
  published.insert(last.changed.keys.begin(), last.changed.keys.end());
  const std::vector<Key> expected = shard->ReadRows(false)->keys;
  EXPECT_EQ(std::vector<Key>(published.begin(), published.end()), expected);
}

}  // namespace
}  // namespace hps
