// A test's own world, and one session of the table that it serves.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <memory>

#include "query/test_query_world.h"

namespace hps {

class ServedWorldTest : public testing::Test {
 protected:
  WorldTable& Add(const WorldTableOptions& options, Executor* executor) {
    tables_.push_back(MakeWorldTable(options, executor));
    return tables_.back();
  }
  void Serve(const WorldTable& table) {
    world_.Publish({&table});
    session_ = world_.NewSession();
  }

  std::deque<WorldTable> tables_;  // what the world's levels borrow from outlives it
  World world_;
  std::unique_ptr<LookupSession> session_;
};

}  // namespace hps
