#include "update/parked_messages.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "testing/test_directory.h"
#include "testing/unprivileged.h"

namespace hps {
namespace {

constexpr uint64_t kBytesMax = 1 << 20;
constexpr char kFile[] = "parked/messages";

ParkedMessage Message(uint64_t offset, size_t payload_bytes = 10,
                      ParkReason reason = ParkReason::kChecksum) {
  return {.table = "m/t",
          .topic = "hps_et.m.t",
          .position = {.partition = 3, .generation = 2, .offset = offset},
          .reason = reason,
          .detail = "the checksum is wrong",
          .time_ms = 1'700'000'000'123,
          .payload = std::vector<std::byte>(payload_bytes, std::byte{0x5a})};
}

void ExpectSame(const ParkedMessage& got, const ParkedMessage& expected) {
  EXPECT_EQ(got.table, expected.table);
  EXPECT_EQ(got.topic, expected.topic);
  EXPECT_EQ(got.position, expected.position);
  EXPECT_EQ(got.reason, expected.reason);
  EXPECT_EQ(got.detail, expected.detail);
  EXPECT_EQ(got.time_ms, expected.time_ms);
  EXPECT_EQ(got.payload, expected.payload);
}

// The offsets of the messages in the file.
std::vector<uint64_t> Offsets(const TestDirectory& store) {
  std::vector<uint64_t> offsets;
  const auto messages = ReadParkedMessages(store.path());
  EXPECT_TRUE(messages.ok()) << messages.status();
  if (!messages.ok()) return offsets;
  for (const ParkedMessage& message : *messages) offsets.push_back(message.position.offset);
  return offsets;
}

std::unique_ptr<ParkedMessages> Open(const TestDirectory& store, uint64_t bytes_max = kBytesMax) {
  auto parked = ParkedMessages::Open(store.path(), bytes_max);
  EXPECT_TRUE(parked.ok()) << parked.status();
  return parked.ok() ? *std::move(parked) : nullptr;
}

TEST(ParkedMessages, AreReadAsTheyWereAddedAlsoBesideTheWriter) {
  const TestDirectory store;
  EXPECT_EQ(ReadParkedMessages(store.path())->size(), 0u);
  const auto parked = Open(store);
  EXPECT_EQ(Offsets(store).size(), 0u);
  std::vector<ParkedMessage> added;
  for (const size_t payload_bytes : {0, 1, 31, 4096}) {
    added.push_back(Message(added.size(), payload_bytes, static_cast<ParkReason>(added.size())));
    ASSERT_TRUE(parked->Add(added.back()).ok());
  }
  const auto read = ReadParkedMessages(store.path());
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), added.size());
  for (size_t i = 0; i < added.size(); ++i) ExpectSame((*read)[i], added[i]);
}

TEST(ParkedMessages, AreKeptWhenTheFileIsOpenedAgain) {
  const TestDirectory store;
  ASSERT_TRUE(Open(store)->Add(Message(1)).ok());
  const auto parked = Open(store);
  EXPECT_EQ(parked->counts()[static_cast<size_t>(ParkReason::kChecksum)], 0u);
  ASSERT_TRUE(parked->Add(Message(2)).ok());
  EXPECT_EQ(Offsets(store), (std::vector<uint64_t>{1, 2}));
}

TEST(ParkedMessages, AreForTheOwnerOnly) {
  const TestDirectory store;
  ASSERT_TRUE(Open(store)->Add(Message(1)).ok());
  struct stat status = {};
  ASSERT_EQ(stat(store.Path(kFile).c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  ASSERT_TRUE(ReplaceParkedMessages(store.path(), {}).ok());
  ASSERT_EQ(stat(store.Path(kFile).c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST(ParkedMessages, AFullFileDropsThePayloadThenTheMessageAndCountsAll) {
  const TestDirectory store;
  constexpr uint64_t kSmall = 1300;
  const auto parked = Open(store, kSmall);
  for (uint64_t i = 0; i < 20; ++i) ASSERT_TRUE(parked->Add(Message(i, 400)).ok());
  EXPECT_LE(std::filesystem::file_size(store.Path(kFile)), kSmall);
  EXPECT_EQ(parked->counts()[static_cast<size_t>(ParkReason::kChecksum)], 20u);
  const auto messages = *ReadParkedMessages(store.path());
  ASSERT_GT(messages.size(), 2u);
  EXPECT_LT(messages.size(), 20u);
  EXPECT_EQ(messages[0].payload.size(), 400u);
  EXPECT_EQ(messages.back().payload.size(), 0u);
  EXPECT_NE(messages.back().detail.find("400 bytes were not kept"), std::string::npos);
}

TEST(ParkedMessages, AnOversizedPayloadIsNotKept) {
  const TestDirectory store;
  const auto parked = Open(store, uint64_t{1} << 30);
  ASSERT_TRUE(parked->Add(Message(1, kUpdateMessageBytesMax + 1, ParkReason::kOversized)).ok());
  ASSERT_TRUE(parked->Add(Message(2, kUpdateMessageBytesMax)).ok());
  const auto messages = *ReadParkedMessages(store.path());
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_EQ(messages[0].payload.size(), 0u);
  EXPECT_EQ(messages[1].payload.size(), kUpdateMessageBytesMax);
}

// The process ended while a message was being written: at every length.
TEST(ParkedMessages, ATornTailIsPassedOverAndRemoved) {
  const TestDirectory store;
  ASSERT_TRUE(Open(store)->Add(Message(1)).ok());
  const size_t whole = store.Read(kFile).size();
  ASSERT_TRUE(Open(store)->Add(Message(2)).ok());
  const std::string both = store.Read(kFile);
  for (size_t length = 0; length < both.size(); ++length) {
    store.Write(kFile, both.substr(0, length));
    const std::vector<uint64_t> expected =
        length < whole ? std::vector<uint64_t>{} : std::vector<uint64_t>{1};
    EXPECT_EQ(Offsets(store), expected) << length;
    ASSERT_TRUE(Open(store)->Add(Message(9)).ok());
    EXPECT_EQ(Offsets(store).size(), expected.size() + 1) << length;
  }
}

TEST(ParkedMessages, ADamagedMessageIsPassedOver) {
  const TestDirectory store;
  {
    const auto parked = Open(store);
    for (uint64_t i = 1; i <= 3; ++i) ASSERT_TRUE(parked->Add(Message(i)).ok());
  }
  std::string bytes = store.Read(kFile);
  const size_t middle = bytes.size() / 2;
  bytes[middle] = static_cast<char>(bytes[middle] ^ 1);
  store.Write(kFile, bytes);
  EXPECT_EQ(Offsets(store), (std::vector<uint64_t>{1, 3}));
}

// A damaged file must not keep a store from being served.
TEST(ParkedMessages, AFileOfAnotherKindIsKeptAside) {
  const TestDirectory store;
  store.Write(kFile, "something else");
  EXPECT_EQ(ReadParkedMessages(store.path()).status().code(), absl::StatusCode::kDataLoss);
  ASSERT_TRUE(Open(store)->Add(Message(1)).ok());
  EXPECT_EQ(Offsets(store), (std::vector<uint64_t>{1}));
  EXPECT_EQ(store.Read(std::string(kFile) + ".damaged"), "something else");
  store.Write(kFile, "HPSPARK1 and its records");
  ASSERT_TRUE(Open(store)->Add(Message(2)).ok());
  EXPECT_EQ(store.Read(std::string(kFile) + ".damaged"), "something else") << "not replaced";
  EXPECT_EQ(store.Read(std::string(kFile) + ".damaged2"), "HPSPARK1 and its records");
}

// Bytes that are no record's beginning end the file, also if a producer chose them.
TEST(ParkedMessages, NothingBehindADamagedSizeIsRead) {
  const TestDirectory store;
  {
    const auto parked = Open(store);
    for (uint64_t i = 1; i <= 3; ++i) ASSERT_TRUE(parked->Add(Message(i)).ok());
  }
  const std::string whole = store.Read(kFile);
  const size_t record = (whole.size() - 8) / 3;
  for (const std::string& size : {std::string("\1\0\0\0", 4), std::string(4, '\0'),
                                  std::string("\377\0\0\0", 4), std::string(4, '\377')}) {
    std::string bytes = whole;
    bytes.replace(8 + record + 12, 4, size);  // behind the second record's "PARK" and checksum
    store.Write(kFile, bytes);
    EXPECT_EQ(Offsets(store), (std::vector<uint64_t>{1}));
  }
}

TEST(ParkedMessages, ZerosAtTheEndAreNoMessages) {
  const TestDirectory store;
  ASSERT_TRUE(Open(store)->Add(Message(1)).ok());
  store.Write(kFile, store.Read(kFile) + std::string(4096, '\0'));
  EXPECT_EQ(Offsets(store), (std::vector<uint64_t>{1}));
  ASSERT_TRUE(Open(store)->Add(Message(2)).ok());
  EXPECT_EQ(Offsets(store), (std::vector<uint64_t>{1, 2}));
}

TEST(ParkedMessages, ErrorsOfTheFileSystemAreReported) {
  const TestDirectory store;
  const std::string nowhere = store.Path("nowhere");
  EXPECT_EQ(ParkedMessages::Open(nowhere, kBytesMax).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReplaceParkedMessages(nowhere, {}).code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(Open(store)->Add(Message(1)).ok());
  const Unprivileged unprivileged;
  EXPECT_EQ(ReadParkedMessages(store.path()).status().code(), absl::StatusCode::kPermissionDenied);
}

// A limit of the file's size stands for a full disk.
TEST(ParkedMessages, AFailedWriteLeavesTheFileAsItWas) {
  const TestDirectory store;
  const auto parked = Open(store);
  ASSERT_TRUE(parked->Add(Message(1)).ok());
  const std::string before = store.Read(kFile);
  rlimit limit = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit small = {.rlim_cur = before.size() + 20, .rlim_max = limit.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status failed = parked->Add(Message(2));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_FALSE(failed.ok());
  EXPECT_EQ(store.Read(kFile), before);
  EXPECT_EQ(parked->counts()[static_cast<size_t>(ParkReason::kChecksum)], 2u);
  ASSERT_TRUE(parked->Add(Message(3)).ok());
  EXPECT_EQ(Offsets(store), (std::vector<uint64_t>{1, 3}));
}

TEST(ParkedMessages, AreReplacedInOneStep) {
  const TestDirectory store;
  ASSERT_TRUE(Open(store)->Add(Message(1)).ok());
  const std::vector<ParkedMessage> kept = {Message(7), Message(8)};
  ASSERT_TRUE(ReplaceParkedMessages(store.path(), kept).ok());
  EXPECT_EQ(Offsets(store), (std::vector<uint64_t>{7, 8}));
  ASSERT_TRUE(Open(store)->Add(Message(9)).ok());
  EXPECT_EQ(Offsets(store), (std::vector<uint64_t>{7, 8, 9}));
}

TEST(ParkedMessages, SeveralThreadsAddAndOthersRead) {
  const TestDirectory store;
  const auto parked = Open(store);
  std::vector<std::thread> threads;
  for (uint64_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&parked, thread] {
      for (uint64_t i = 0; i < 100; ++i) EXPECT_TRUE(parked->Add(Message(thread * 100 + i)).ok());
    });
  }
  while (Offsets(store).size() < 400) EXPECT_LE(parked->counts()[3], 400u);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Offsets(store).size(), 400u);
}

}  // namespace
}  // namespace hps
