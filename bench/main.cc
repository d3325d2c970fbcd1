// hps-bench, the program that `hps bench` starts. Exit status as of `hps`: 0 done, 1 it could not
// be done, 2 wrong usage.
#include <algorithm>
#include <optional>

#include "bench/bench_command.h"
#include "cli/program.h"

namespace hps::bench {
namespace {

int Main(int argc, const char* const* argv) {
  const auto arguments = ParseBenchArguments({argv + std::min(argc, 1), argv + argc});
  return cli::RunLine(argc, argv, arguments, [&](cli::Output& output) {
    return cli::ExitStatusOf(output, RunBench(*arguments, output));
  });
}

}  // namespace
}  // namespace hps::bench

int main(int argc, char** argv) {
  const std::optional<int> ended = hps::cli::PrepareProgram(argc, argv);
  return ended.has_value() ? *ended : hps::bench::Main(argc, argv);
}
