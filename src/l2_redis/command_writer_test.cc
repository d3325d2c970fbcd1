#include "l2_redis/command_writer.h"

#include <gtest/gtest.h>

namespace hps {
namespace {

TEST(CommandWriterTest, WritesArraysOfStrings) {
  std::string out;
  AppendCommand({"SET", "k\r\n", ""}, out);
  EXPECT_EQ(out, "*3\r\n$3\r\nSET\r\n$3\r\nk\r\n\r\n$0\r\n\r\n");
  out.clear();
  AppendCommandHeader(1'000'000, out);
  EXPECT_EQ(out, "*1000000\r\n");
}

}  // namespace
}  // namespace hps
