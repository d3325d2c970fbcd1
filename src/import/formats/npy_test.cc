#include "import/formats/npy.h"

#include <gtest/gtest.h>

#include <random>

#include "import/formats/test_files.h"

namespace hps {
namespace {

TEST(NpyTest, ParsesWhatNumPyWrites) {
  const auto header =
      ParseNpyDictionary("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }   \n");
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->descr, "<f4");
  EXPECT_FALSE(header->fortran_order);
  EXPECT_EQ(header->shape, (std::vector<uint64_t>{3, 4}));
}

TEST(NpyTest, ParsesOtherSpellings) {
  const auto header =
      ParseNpyDictionary(" {\"shape\":(5,),\"fortran_order\" : True,\"descr\":\"|V2\"}");
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->descr, "|V2");
  EXPECT_TRUE(header->fortran_order);
  EXPECT_EQ(header->shape, (std::vector<uint64_t>{5}));
  EXPECT_TRUE(
      ParseNpyDictionary("{'descr': '<f4', 'fortran_order': False, 'shape': ()}")->shape.empty());
  const auto structured = ParseNpyDictionary(
      "{'descr': [('a', '<f4'), ('b', '<i8')], 'fortran_order': False, 'shape': (2,)}");
  ASSERT_TRUE(structured.ok()) << structured.status();
  EXPECT_EQ(structured->descr, "");
}

TEST(NpyTest, RefusesInvalidHeaders) {
  for (const char* text : {
           "",
           "{",
           "{}",
           "x",
           "{'descr'",
           "{'descr': }",
           "{'descr': '<f4}",
           "{'descr': '<f4', 'fortran_order': False}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (3)} x",
           "{'descr': '<f4', 'fortran_order': Maybe, 'shape': (3,)}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': 3}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (-3,)}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (3 4)}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (18446744073709551616,)}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}",
           "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (3,)}",
           "{'descr': '<f4', 'other': 1, 'fortran_order': False, 'shape': (3,)}",
           "{'descr': [, 'fortran_order': False, 'shape': (3,)}",
           "{'descr': '<f4' 'fortran_order': False, 'shape': (3,)}",
       }) {
    EXPECT_EQ(ParseNpyDictionary(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

class NpyFileTest : public testing::Test {
 protected:
  absl::StatusOr<NpyHeader> ReadHeader(const std::string& bytes) {
    auto file = File::OpenForReading(directory_.Write("x.npy", bytes));
    HPS_CHECK(file.ok());
    auto header = ReadNpyHeader(*file);
    if (!header.ok()) {
      EXPECT_EQ(header.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_NE(header.status().message().find(directory_.Path("x.npy")), std::string::npos)
          << header.status();
    }
    return header;
  }
  absl::Status Validate(const std::string& bytes, size_t element_bytes) {
    const auto header = ReadHeader(bytes);
    if (!header.ok()) return header.status();
    return ValidateNpyData(*File::OpenForReading(directory_.Path("x.npy")), *header, element_bytes);
  }

  const TestDirectory directory_;
};

TEST_F(NpyFileTest, ReadsAllVersions) {
  const std::string version1 = NpyBytes("<f4", "(2,)", "12345678");
  ASSERT_TRUE(ReadHeader(version1).ok());
  EXPECT_EQ(ReadHeader(version1)->data_offset, version1.size() - 8);
  for (const char version : {'\x02', '\x03'}) {
    // The length field has four bytes instead of two.
    std::string bytes = version1;
    bytes[6] = version;
    bytes.insert(10, std::string(2, '\0'));
    ASSERT_TRUE(ReadHeader(bytes).ok());
    EXPECT_EQ(ReadHeader(bytes)->data_offset, bytes.size() - 8);
  }
}

TEST_F(NpyFileTest, RefusesHostilePreambles) {
  const std::string good = NpyBytes("<f4", "(2,)", "12345678");
  EXPECT_FALSE(ReadHeader("").ok());
  EXPECT_FALSE(ReadHeader(good.substr(0, 9)).ok());
  EXPECT_FALSE(ReadHeader("PK\x03\x04" + good).ok());
  std::string bad = good;
  bad[6] = 9;
  EXPECT_FALSE(ReadHeader(bad).ok());
  bad = good;
  bad[8] = bad[9] = '\xff';  // longer than the file
  EXPECT_FALSE(ReadHeader(bad).ok());
  bad = good;
  bad[6] = 2;
  for (int i = 8; i < 12; ++i) bad[static_cast<size_t>(i)] = '\xff';
  const auto huge = ReadHeader(bad);
  EXPECT_NE(huge.status().message().find("found 4294967295"), std::string::npos) << huge.status();
  // Within the file, but longer than any valid header: refused before the allocation.
  directory_.Write("x.npy", bad.substr(0, 8) + BytesOf<uint32_t>({1 << 20}));
  std::filesystem::resize_file(directory_.Path("x.npy"), 2 << 20);
  const auto file = File::OpenForReading(directory_.Path("x.npy"));
  EXPECT_NE(ReadNpyHeader(*file).status().message().find("at most 65536 bytes, found 1048576"),
            std::string::npos);
}

TEST_F(NpyFileTest, DataMustBeExactlyWhatTheShapeSays) {
  EXPECT_EQ(Validate(NpyBytes("<f4", "(2, 3)", std::string(24, 'x')), 4), absl::OkStatus());
  EXPECT_EQ(Validate(NpyBytes("<f4", "(0, 3)", ""), 4), absl::OkStatus());
  for (const size_t bytes : {0, 23, 25, 48}) {
    const absl::Status status = Validate(NpyBytes("<f4", "(2, 3)", std::string(bytes, 'x')), 4);
    EXPECT_NE(status.message().find("[2, 3] elements of 4 bytes = 24 bytes"), std::string::npos);
    EXPECT_NE(status.message().find("found " + std::to_string(bytes)), std::string::npos);
  }
  const absl::Status overflow =
      Validate(NpyBytes("<f4", "(4611686018427387904, 4)", std::string(16, 'x')), 4);
  EXPECT_NE(overflow.message().find("more than 2^64"), std::string::npos) << overflow;
  const absl::Status fortran = Validate(NpyBytes("<f4", "(2, 3)", std::string(24, 'x'), "True"), 4);
  EXPECT_EQ(fortran.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(fortran.message().find("Fortran order"), std::string::npos);
}

TEST_F(NpyFileTest, ReadsWhatItWrites) {
  const std::vector<uint64_t> shape = {123456789, 7};
  for (size_t rank : {1, 2}) {
    const std::string header = FormatNpyHeader("<i8", std::span(shape).first(rank));
    EXPECT_EQ(header.size(), kNpyWrittenHeaderBytes);
    EXPECT_EQ(header.back(), '\n');
    const auto read = ReadHeader(header);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->descr, "<i8");
    EXPECT_EQ(read->shape,
              std::vector<uint64_t>(shape.begin(), shape.begin() + static_cast<ptrdiff_t>(rank)));
    EXPECT_EQ(read->data_offset, kNpyWrittenHeaderBytes);
  }
}

// Mutants of a valid header give a result or an error. The sanitizers find other faults.
TEST(NpyMutantTest, NoMutantIsReadOutOfBounds) {
  const uint64_t seed = 20260101;
  std::mt19937_64 random(seed);
  const std::string good = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }   \n";
  const std::string alphabet = "{}()[]'\",: 0123456789TFalse<f4";
  size_t accepted = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string text = good;
    for (uint64_t change = random() % 4; change > 0; --change) {
      const size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = alphabet[random() % alphabet.size()];
          break;
        case 1:
          text.erase(at, 1 + random() % 8);
          break;
        default:
          text.insert(at, 1, alphabet[random() % alphabet.size()]);
      }
      if (text.empty()) break;
    }
    const auto header = ParseNpyDictionary(text);
    accepted += header.ok() ? 1 : 0;
    EXPECT_TRUE(!header.ok() || header->shape.size() <= kNpyRankMax);
  }
  EXPECT_GT(accepted, 0U);
  EXPECT_LT(accepted, 20'000U);
}

}  // namespace
}  // namespace hps
