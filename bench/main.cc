// hps-bench, the program that `hps bench` starts. Exit status as of `hps`: 0 done, 1 it could not
// be done, 2 wrong usage.
#include <algorithm>
#include <string>
#include <vector>

#include "bench/bench_command.h"
#include "cli/program.h"

namespace hps::bench {
namespace {

int Main(const std::vector<std::string>& words) {
  const absl::StatusOr<BenchArguments> arguments = ParseBenchArguments(words);
  const bool asks_for_json = std::find(words.begin(), words.end(), "--json") != words.end();
  cli::Output output(arguments.ok() ? arguments->json && arguments->text.empty() : asks_for_json);
  if (!arguments.ok()) {
    output.Finish(arguments.status()).IgnoreError();
    return cli::kWrongUsage;
  }
  if (!arguments->text.empty()) {
    output.Print(arguments->text);
    return cli::ExitStatusOf(output, absl::OkStatus());
  }
  return cli::WithoutExceptions(
      output, [&] { return cli::ExitStatusOf(output, RunBench(*arguments, output)); });
}

}  // namespace
}  // namespace hps::bench

int main(int argc, char** argv) {
  int exit_status = 0;
  if (hps::cli::PrepareProgram(argc, argv, &exit_status)) return exit_status;
  return hps::bench::Main({argv + std::min(argc, 1), argv + argc});
}
