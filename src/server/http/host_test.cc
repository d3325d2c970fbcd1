#include "server/http/host.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace hps::server {
namespace {

TEST(HostTest, ReadsNamesAndAddressesWithoutTheirPort) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", ""},
      {":8000", ""},
      {"localhost", "localhost"},
      {"LocalHost.:80", "LocalHost"},
      {"h-1.example_x:", "h-1.example_x"},
      {"10.0.0.1:0", "10.0.0.1"},
      {"x:65535", "x"},
      {"x:00080", "x"},
      {"a%41b", "a%41b"},
      {"[::1]", "[::1]"},
      {"[2001:db8::7]:8000", "[2001:db8::7]"},
      {"[::ffff:10.0.0.1]:", "[::ffff:10.0.0.1]"}};
  for (const auto& [text, expected] : cases) {
    std::string_view name = "unset";
    EXPECT_TRUE(ParseHost(text, &name)) << text;
    EXPECT_EQ(name, expected) << text;
  }
}

TEST(HostTest, RefusesWhatIsNoHost) {
  for (const std::string text : {"a b",
                                 "a/b",
                                 "u@h",
                                 "u:p@h",
                                 "h?",
                                 "h#",
                                 "a,b",
                                 "h\\",
                                 "\x80",
                                 "h\xff",
                                 "a%4",
                                 "a%zz",
                                 "%",
                                 "x:65536",
                                 "x:99999999999999999999",
                                 "x:-1",
                                 "x:+1",
                                 "x:1a",
                                 "x:1:2",
                                 "::1",
                                 "[",
                                 "[]",
                                 "[::1",
                                 "::1]",
                                 "[::1]x",
                                 "[::1]80",
                                 "[::1]:x",
                                 "[::1%25eth0]",
                                 "[:::1]",
                                 "[10.0.0.1]",
                                 "[g::1]",
                                 "h[::1]",
                                 "<h>",
                                 "\"h\"",
                                 "[0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:1]"}) {
    std::string_view name;
    EXPECT_FALSE(ParseHost(text, &name)) << text;
  }
}

// Catches: a name that a stranger's web page could have, and that begins as a local address does.
TEST(HostTest, KnowsTheNamesOfThisMachine) {
  for (const char* name : {"localhost", "LOCALHOST", "127.0.0.1", "127.255.255.254", "[::1]",
                           "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", "a.localhost"}) {
    EXPECT_TRUE(IsLocalName(name)) << name;
  }
  for (const char* name :
       {"", "localhost.evil.example", "evil.localhost.example", "127.evil.example",
        "127.0.0.1.evil", "128.0.0.1", "0.0.0.0", "10.0.0.1", "[::]", "[::2]", "[::ffff:10.0.0.1]",
        "localhos", "xlocalhost", "1.0.0.127"}) {
    EXPECT_FALSE(IsLocalName(name)) << name;
  }
}

TEST(HostTest, KnowsAddressesThatAreForThisMachineAlone) {
  for (const char* address : {"127.0.0.1:80", "127.1.2.3:80", "127.1:80", "localhost:80",
                              "LOCALHOST:80", "[::1]:80", "[::ffff:127.0.0.1]:80"}) {
    EXPECT_TRUE(IsLoopback(address)) << address;
  }
  for (const char* address :
       {"0.0.0.0:80", "10.0.0.1:80", "[::]:80", "example.org:80", "127.evil.example:80", ":80"})
    EXPECT_FALSE(IsLoopback(address)) << address;
}

}  // namespace
}  // namespace hps::server
