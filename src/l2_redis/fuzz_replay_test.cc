// Feeds each fuzz target what broke readers of replies before, and tens of thousands of mutants of
// valid input. libFuzzer (CMake option HPS_FUZZ, clang) goes on from there.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "l2_redis/fuzz_targets.h"
#include "l2_redis/row_value.h"
#include "l2_redis/shared_value.h"
#include "testing/fuzz_replay.h"

namespace hps {
namespace {

const std::vector<std::string>& Pieces() {
  static const std::vector<std::string> kPieces = {"\r\n",
                                                   "\r",
                                                   "\n",
                                                   "*",
                                                   "$",
                                                   ":",
                                                   "+",
                                                   "-",
                                                   "*-1\r\n",
                                                   "$-1\r\n",
                                                   "*0\r\n",
                                                   "$0\r\n\r\n",
                                                   "*2147483648\r\n",
                                                   "*4294967296\r\n",
                                                   "$9223372036854775807\r\n",
                                                   ":18446744073709551616\r\n",
                                                   "*1\r\n*1\r\n*1\r\n*1\r\n",
                                                   "$1073741824\r\n",
                                                   "MOVED 1 h:1",
                                                   std::string(1, '\0'),
                                                   "\xff",
                                                   "*1\r\n",
                                                   "00",
                                                   "e9"};
  return kPieces;
}

void Replay(const std::function<void(std::span<const std::byte>)>& target,
            const std::vector<std::string>& seeds) {
  ReplayMutants(target, seeds, Pieces(), 20261126);
}

TEST(FuzzReplayTest, RedisReply) {
  // CLUSTER SLOTS of two masters, one with a replica.
  const std::string slots =
      "\x20*2\r\n*4\r\n:0\r\n:8191\r\n*3\r\n$9\r\n127.0.0.1\r\n:7000\r\n$1\r\na\r\n"
      "*3\r\n$9\r\n127.0.0.1\r\n:7002\r\n$1\r\nb\r\n"
      "*3\r\n:8192\r\n:16383\r\n*3\r\n$0\r\n\r\n:7001\r\n$1\r\nc\r\n";
  Replay(FuzzRedisReply,
         {"", "\x01", "\x05+OK\r\n-ERR no\r\n:42\r\n$5\r\na\r\nb\n\r\n$-1\r\n*0\r\n*-1\r\n",
          "\x01*2\r\n*2\r\n:1\r\n$1\r\nx\r\n*1\r\n$-1\r\n", "\x40*1000000000\r\n",
          "\xff$1000000000\r\nabc", "\x10$-2\r\nx\r\n",
          "\x07*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n", slots,
          "\x03-MOVED 3999 127.0.0.1:6381\r\n-ASK 3999 ::1:6381\r\n-LOADING x\r\n",
          // HSCAN and SCAN
          "\x09*2\r\n$2\r\n17\r\n*2\r\n$8\r\n12345678\r\n$4\r\nabcd\r\n",
          "\x02*2\r\n$1\r\n0\r\n*1\r\n$24\r\nhps_et{hps_et.m.t/p17}v\r\n\r\n",
          "\x02*2\r\n$1\r\n0\r\n*1\r\n$23\r\nhps_et{hps_et.m.t/p17}v\r\n"});
}

TEST(FuzzReplayTest, RedisRowValue) {
  std::vector<std::string> seeds = {"", std::string(1, '\0'), std::string(13, '\0')};
  for (const size_t row_bytes : {0, 4, 32, 255}) {
    std::string seed(1, static_cast<char>(row_bytes));
    const std::string row(row_bytes, 'r');
    AppendRowValue({.incarnation = 77, .generation = 0xabcdef, .key = -5}, 9,
                   AsBytes(std::string_view(row)), seed);
    seeds.push_back(seed);
  }
  Replay(FuzzRedisRowValue, seeds);
}

TEST(FuzzReplayTest, RedisSharedValue) {
  std::vector<std::string> seeds = {"", std::string(1, '\0'), std::string(29, '\0')};
  for (const size_t row_bytes : {0, 4, 32, 255}) {
    std::string seed(1, static_cast<char>(row_bytes));
    const std::string row(row_bytes, 'r');
    AppendNonce(123456789, seed);
    AppendSharedRow({.table = 77, .key = -5},
                    {.version = 7, .complete_to = 9, .row = AsBytes(std::string_view(row))}, seed);
    seeds.push_back(seed);
  }
  for (const std::vector<Version>& positions :
       {std::vector<Version>{}, {5}, {1, 2, 3, uint64_t{7} << 48}}) {
    std::string mark;
    AppendNonce(123456789, mark);
    AppendVersions(positions, mark);
    const uint32_t checksum = SharedMarkChecksum(mark);
    for (const int shift : {24, 16, 8, 0}) mark += static_cast<char>(checksum >> shift);
    seeds.push_back("\x08" + mark);
  }
  Replay(FuzzRedisSharedValue, seeds);
}

}  // namespace
}  // namespace hps
