#include "l3_rocksdb/files/file_checksum.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/bytes.h"
#include "l3_rocksdb/files/log_check.h"
#include "l3_rocksdb/test_store.h"

namespace hps {
namespace {

TEST(FileChecksumTest, CoversEveryByteAtEverySize) {
  const TestDirectory directory;
  const std::string path = directory.path() + "/f";
  constexpr size_t kPiece = size_t{1} << 20;
  for (const size_t size : {size_t{0}, size_t{1}, kPiece - 1, kPiece, kPiece + 1, 3 * kPiece}) {
    std::string bytes(size, 'x');
    for (const bool flipped : {false, true}) {
      if (flipped && size == 0) continue;
      if (flipped) bytes.back() ^= 1;
      std::ofstream(path, std::ios::binary) << bytes;
      const auto found = ChecksumOf(rocksdb::Env::Default(), path);
      ASSERT_TRUE(found.ok()) << found.status();
      EXPECT_EQ(found->bytes, size);
      ASSERT_EQ(found->checksum.size(), 4u);
      EXPECT_EQ(__builtin_bswap32(LoadLittleEndian<uint32_t>(found->checksum.data())),
                Crc32c(bytes))
          << size;
    }
  }
}

TEST(FileChecksumTest, AMissingFileIsDamage) {
  const TestDirectory directory;
  EXPECT_EQ(ChecksumOf(rocksdb::Env::Default(), directory.path() + "/none").status().code(),
            absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace hps
