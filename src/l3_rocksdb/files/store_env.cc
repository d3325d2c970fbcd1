#include "l3_rocksdb/files/store_env.h"

#include <rocksdb/system_clock.h>

#include <chrono>
#include <utility>

#include "base/clock.h"

namespace hps {
namespace {

class MonotonicClock final : public rocksdb::SystemClockWrapper {
 public:
  MonotonicClock() : SystemClockWrapper(rocksdb::SystemClock::Default()) {}

  const char* Name() const override { return "MonotonicClock"; }
  uint64_t NowMicros() override { return MicrosAt(RealClock().Now()); }
  uint64_t MicrosAt(TimePoint time) const {
    return began_micros_ +
           static_cast<uint64_t>(
               std::chrono::duration_cast<std::chrono::microseconds>(time - began_).count());
  }

 private:
  const uint64_t began_micros_ = target_->NowMicros();
  const TimePoint began_ = RealClock().Now();
};

// Shared by all databases of the process.
const std::shared_ptr<MonotonicClock>& TheClock() {
  static const std::shared_ptr<MonotonicClock> clock = std::make_shared<MonotonicClock>();
  return clock;
}

class StoreEnv final : public rocksdb::EnvWrapper {
 public:
  explicit StoreEnv(std::unique_ptr<rocksdb::Env> files) : EnvWrapper(std::move(files)) {
    file_system_ = target()->GetFileSystem();
    system_clock_ = TheClock();
  }

  const char* Name() const override { return "StoreEnv"; }
  uint64_t NowMicros() override { return system_clock_->NowMicros(); }
};

}  // namespace

std::unique_ptr<rocksdb::Env> NewStoreEnv(const std::shared_ptr<rocksdb::FileSystem>& files) {
  return std::make_unique<StoreEnv>(rocksdb::NewCompositeEnv(files));
}

uint64_t StoreMicrosAt(TimePoint time) { return TheClock()->MicrosAt(time); }

}  // namespace hps
