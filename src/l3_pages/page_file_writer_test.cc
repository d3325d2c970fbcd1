#include "l3_pages/page_file_writer.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <xxhash.h>

#include <csignal>
#include <filesystem>

#include "base/bytes.h"
#include "base/hash.h"
#include "l3_pages/page_file.h"
#include "l3_pages/page_write_behind.h"
#include "l3_pages/test_page_table.h"

namespace hps {
namespace {

constexpr size_t kNarrowRowBytes = 64;

struct OneRow {
  explicit OneRow(Key key_to_add) : key(key_to_add), row(kNarrowRowBytes) {}
  absl::Status AddTo(PageFileWriter& writer) {
    return writer.Add({&key, 1}, {row.data(), 1, kNarrowRowBytes, kNarrowRowBytes});
  }
  Key key;
  std::vector<std::byte> row;
};

TEST(PageFileWriterTest, RefusesKeysThatDoNotAscend) {
  const TestDirectory directory;
  for (const Key second : {Key{5}, Key{4}, Key{INT64_MIN}}) {
    auto writer = *PageFileWriter::Create(directory.Path("rows"), 1, kNarrowRowBytes);
    ASSERT_TRUE(OneRow(5).AddTo(*writer).ok());
    const absl::Status refused = OneRow(second).AddTo(*writer);
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  }
  EXPECT_FALSE(directory.Has("rows"));
}

TEST(PageFileWriterTest, RemovesAFileThatIsNotFinished) {
  const TestDirectory directory;
  {
    auto writer = *PageFileWriter::Create(directory.Path("rows"), 1, kNarrowRowBytes);
    ASSERT_TRUE(OneRow(5).AddTo(*writer).ok());
    EXPECT_TRUE(directory.Has("rows"));
  }
  EXPECT_FALSE(directory.Has("rows"));
}

TEST(PageFileWriterTest, DoesNotReplaceAFile) {
  const TestDirectory directory;
  directory.Write("rows", "precious");
  const auto writer = PageFileWriter::Create(directory.Path("rows"), 1, kNarrowRowBytes);
  EXPECT_TRUE(absl::IsAlreadyExists(writer.status())) << writer.status();
  EXPECT_EQ(directory.Read("rows"), "precious");
  EXPECT_TRUE(absl::IsNotFound(
      PageFileWriter::Create(directory.Path("no/rows"), 1, kNarrowRowBytes).status()));
}

// The limit of the size of files stands for a full disk.
TEST(PageFileWriterTest, SaysThatTheDiskIsFull) {
  const TestDirectory directory;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 3 << 20;
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  {
    auto writer = *PageFileWriter::Create(directory.Path("rows"), 1, kNarrowRowBytes);
    absl::Status added;
    for (Key key = 0; key < 200'000 && added.ok(); ++key) added = OneRow(key).AddTo(*writer);
    EXPECT_TRUE(absl::IsResourceExhausted(added)) << added;
  }
  EXPECT_FALSE(directory.Has("rows"));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
}

// Until it is finished a file has no header: a process that dies leaves no page file.
TEST(PageFileWriterTest, AnUnfinishedFileDoesNotOpen) {
  const TestDirectory directory;
  auto writer = *PageFileWriter::Create(directory.Path("rows"), 1, kNarrowRowBytes);
  for (Key key = 0; key < 50'000; ++key) ASSERT_TRUE(OneRow(key).AddTo(*writer).ok());
  std::filesystem::copy_file(directory.Path("rows"), directory.Path("copy"));
  const auto opened = PageFile::Open({directory.Path("copy"), 1, kNarrowRowBytes, false});
  EXPECT_TRUE(absl::IsDataLoss(opened.status())) << opened.status();
  ASSERT_TRUE(writer->Finish().ok());
  EXPECT_TRUE(PageFile::Open({directory.Path("rows"), 1, kNarrowRowBytes, false}).ok());
}

TEST(PageWriteBehindTest, WritesOnePieceAfterTheOther) {
  const TestDirectory directory;
  const auto file = *PageFileHandle::CreateNew(directory.Path("pieces"), false);
  std::string expected;
  {
    PageWriteBehind behind(file);
    EXPECT_TRUE(behind.Wait().ok());
    for (char letter = 'a'; letter <= 'z'; ++letter) {
      const std::string piece(1'000, letter);
      behind.Begin(expected.size(), AsBytes(std::string_view(piece)));
      ASSERT_TRUE(behind.Wait().ok());
      expected += piece;
    }
  }
  EXPECT_EQ(directory.Read("pieces"), expected);
}

TEST(PageWriteBehindTest, TellsTheErrorOfAPiece) {
  const TestDirectory directory;
  directory.Write("pieces", "precious");
  const auto file = *PageFileHandle::OpenForReading(directory.Path("pieces"), false);
  PageWriteBehind behind(file);
  behind.Begin(0, AsBytes(std::string_view("x")));
  const absl::Status status = behind.Wait();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_NE(status.message().find("pieces"), std::string::npos) << status;
  EXPECT_TRUE(behind.Wait().ok());
  EXPECT_EQ(directory.Read("pieces"), "precious");
}

// The bytes as docs/page_files.md describes them, computed without the code under test.
TEST(PageFileWriterTest, WritesTheDocumentedBytes) {
  TestPageTable table(kNarrowRowBytes);
  table.Write({{-2, 0}, {7, 9}});
  std::ifstream stream(table.path(), std::ios::binary);
  const std::string file((std::istreambuf_iterator<char>(stream)), {});
  ASSERT_EQ(file.size(), 4 * 4096u);  // header, one page, one block of the index, footer
  const std::string header = file.substr(0, 4096);
  EXPECT_EQ(header, file.substr(3 * 4096));
  EXPECT_EQ(header.substr(0, 8), "HPSPAGE1");
  EXPECT_EQ(LoadLittleEndian<uint32_t>(header.data() + 8), 1u);      // version
  EXPECT_EQ(LoadLittleEndian<uint32_t>(header.data() + 12), 64u);    // bytes of a row
  EXPECT_EQ(LoadLittleEndian<uint32_t>(header.data() + 16), 4096u);  // bytes of a page
  EXPECT_EQ(LoadLittleEndian<uint32_t>(header.data() + 20), 51u);    // rows of a page
  EXPECT_EQ(LoadLittleEndian<uint64_t>(header.data() + 24), kTestIncarnation);
  EXPECT_EQ(LoadLittleEndian<uint64_t>(header.data() + 32), 2u);  // rows
  EXPECT_EQ(LoadLittleEndian<Key>(header.data() + 40), -2);
  EXPECT_EQ(LoadLittleEndian<Key>(header.data() + 48), 7);
  EXPECT_EQ(LoadLittleEndian<uint64_t>(header.data() + 4088), XXH3_64bits(header.data(), 4088));

  const char* const page = file.data() + 4096;
  EXPECT_EQ(LoadLittleEndian<uint64_t>(page),
            XXH3_64bits(page + 8, 4088) ^ HashKey(0, kTestIncarnation));
  EXPECT_EQ(LoadLittleEndian<Key>(page + 8), -2);
  EXPECT_EQ(LoadLittleEndian<Key>(page + 16), 7);
  EXPECT_EQ(LoadLittleEndian<Version>(page + 8 + 51 * 8), 0u);
  EXPECT_EQ(LoadLittleEndian<Version>(page + 16 + 51 * 8), 9u);
  const auto row = AsBytes(std::string_view(page + 8 + 2 * 51 * 8 + 64, 64));
  EXPECT_TRUE(StampedRow::Matches(1, 7, 9, row));
  EXPECT_EQ(std::string(page + 8 + 2 * 51 * 8 + 128, page + 4096),
            std::string(4096 - 8 - 2 * 51 * 8 - 128, '\0'));

  const char* const index = page + 4096;
  EXPECT_EQ(LoadLittleEndian<uint64_t>(index),
            XXH3_64bits(index + 8, 4088) ^ HashKey(1, kTestIncarnation));
  EXPECT_EQ(LoadLittleEndian<Key>(index + 8), -2);
}

}  // namespace
}  // namespace hps
