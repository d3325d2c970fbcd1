// What a store does where threads can't be started: RocksDB throws then, wherever it is.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdint>

#include "base/logging.h"
#include "tests/faults/one_table.h"
#include "tests/faults/temporary_directory.h"
#include "tests/faults/test_fault_store.h"

namespace {

std::atomic<int64_t> threads_left = INT64_MAX;
std::atomic<int64_t> threads_refused = 0;

}  // namespace

// Stands before the C library's pthread_create, for RocksDB too.
extern "C" __attribute__((visibility("default"))) int CreateThread(pthread_t* thread,
                                                                   const pthread_attr_t* attributes,
                                                                   void* (*run)(void*),
                                                                   void* argument) noexcept
    __asm__("pthread_create");

int CreateThread(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                 void* argument) noexcept {
  static const auto next =
      std::bit_cast<decltype(&CreateThread)>(dlsym(RTLD_NEXT, "pthread_create"));
  if (threads_left.fetch_sub(1) > 0) return next(thread, attributes, run, argument);
  ++threads_refused;
  return EAGAIN;
}

namespace hps {
namespace {

// Catches: a thread that is first started when there is work for it, also after tries that have
// failed at each of the threads.
TEST(ThreadShortageTest, AStoreThatIsOpenStartsNoThread) {
  SetLogLevel(LogLevel::kOff);
  const TemporaryDirectory directory;
  absl::StatusOr<std::unique_ptr<DurableStore>> store = absl::UnknownError("not tried");
  int64_t allowed = 0;
  for (; !store.ok() && allowed < 100; ++allowed) {
    // RocksDB keeps the lock of what it has failed to open.
    const RocksStoreOptions options =
        TestStoreOptions(directory.path("store" + std::to_string(allowed)));
    threads_left = allowed;
    store = OpenRocksStore(options);
    threads_left = INT64_MAX;
    if (store.ok()) break;
    EXPECT_EQ(store.status().code(), absl::StatusCode::kResourceExhausted) << store.status();
  }
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_GT(allowed, 0);
  const TableSpec spec = OneTable();
  const auto import = [&](uint64_t row_count) {
    return FillOneTable((*store)->BeginImport({&spec, 1}), row_count).status();
  };
  threads_refused = 0;
  threads_left = 0;
  // The writer of a page file asks for a thread, and does without it.
  EXPECT_TRUE(import(10).ok());
  EXPECT_EQ(threads_refused.exchange(0), 1);
  // Enough for flushes and compactions of the catalog.
  StampedRows rows(1, spec.row_bytes(), {1, 2, 3}, 5);
  for (int i = 0; i < 12; ++i) {
    const absl::Status imported = import(0);
    EXPECT_TRUE(imported.ok()) << imported;
    EXPECT_TRUE((*(*store)->OpenTable("m/a"))->Write({.upserts = rows.batch()}).ok());
  }
  store->reset();
  threads_left = INT64_MAX;
  EXPECT_EQ(threads_refused, 0);
  SetLogLevel(LogLevel::kWarning);
}

}  // namespace
}  // namespace hps
