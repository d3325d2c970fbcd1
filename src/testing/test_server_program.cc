#include "testing/test_server_program.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <iostream>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"

extern char** environ;

namespace hps {
namespace {

constexpr std::string_view kReady = "ready ";

}  // namespace

TestServerProgram::TestServerProgram(std::string name, std::vector<std::string> words)
    : name_(std::move(name)) {
  std::array<int, 2> to{}, from{};
  HPS_CHECK(pipe2(to.data(), O_CLOEXEC) == 0 && pipe2(from.data(), O_CLOEXEC) == 0);
  posix_spawn_file_actions_t actions;
  HPS_CHECK(posix_spawn_file_actions_init(&actions) == 0);
  HPS_CHECK(posix_spawn_file_actions_adddup2(&actions, to[0], STDIN_FILENO) == 0);
  HPS_CHECK(posix_spawn_file_actions_adddup2(&actions, from[1], STDOUT_FILENO) == 0);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const int error =
      posix_spawn(&pid_, words[0].c_str(), &actions, nullptr, arguments.data(), environ);
  Require(error == 0, name_, absl::StrCat(words[0], " can't be started"));
  posix_spawn_file_actions_destroy(&actions);
  close(to[0]);
  close(from[1]);
  to_ = fdopen(to[1], "w");
  from_ = fdopen(from[0], "r");
  const std::string line = ReadLine();
  Require(line.starts_with(kReady), name_, line);
  ready_ = line.substr(kReady.size());
}

TestServerProgram::~TestServerProgram() {
  std::fclose(to_);  // it ends with its input
  std::fclose(from_);
  int status = 0;
  waitpid(pid_, &status, 0);
}

void TestServerProgram::Command(const char* command, size_t server) {
  std::fprintf(to_, "%s %zu\n", command, server);
  std::fflush(to_);
  const std::string line = ReadLine();
  Require(line == "done", name_, absl::StrCat(command, " ", server, ": ", line));
}

void TestServerProgram::Require(bool holds, const std::string& name, const std::string& what) {
  if (!holds) std::cerr << name << " of the test: " << what << std::endl;
  HPS_CHECK(holds);
}

std::string TestServerProgram::ReadLine() {
  std::array<char, 4096> line{};
  if (std::fgets(line.data(), line.size(), from_) == nullptr) return "ended";
  std::string text(line.data());
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

}  // namespace hps
