// RocksDB's background errors: counted, logged, and remembered until writing works again.
#pragma once

#include <rocksdb/listener.h>

#include <atomic>
#include <cstdint>

namespace hps {

// Thread-safe.
class BackgroundErrors final : public rocksdb::EventListener {
 public:
  void OnBackgroundError(rocksdb::BackgroundErrorReason reason, rocksdb::Status* status) override;
  // RocksDB 7.8.3 would recover on threads of its own, beside a write that asks it to, and aborts
  // in both. The next write asks, nobody else.
  void OnErrorRecoveryBegin(rocksdb::BackgroundErrorReason reason, rocksdb::Status error,
                            bool* auto_recovery) override;
  void OnErrorRecoveryCompleted(rocksdb::Status old_error) override;

  bool pending() const { return pending_.load(std::memory_order_acquire); }
  uint64_t count() const { return count_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> pending_{false};
  std::atomic<uint64_t> count_{0};
};

}  // namespace hps
