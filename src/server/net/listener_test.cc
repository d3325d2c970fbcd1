#include "server/net/listener.h"

#include <gtest/gtest.h>

namespace hps::server {
namespace {

TEST(ListenerTest, RefusesAddressesThatAreNone) {
  for (const char* address : {"", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:70000",
                              ":80", "no.such.host.invalid:80", "203.0.113.1:0"}) {
    EXPECT_EQ(Listener::Open(address).status().code(), absl::StatusCode::kInvalidArgument)
        << address;
  }
  const auto first = *Listener::Open("127.0.0.1:0");
  EXPECT_EQ(Listener::Open(first->address()).status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace hps::server
