// Real servers for tests: a program of tools/ that starts servers, and obeys commands
// (tools/obey.py).
//
// A failure here ends the test program, because nothing can be tested without servers. For one
// thread at a time.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

namespace hps {

class TestServerProgram {
 public:
  // Starts the program `words`[0] with the other words as its arguments. Returns when its servers
  // are ready. `name` names them in error messages.
  TestServerProgram(std::string name, std::vector<std::string> words);
  TestServerProgram(const TestServerProgram&) = delete;
  TestServerProgram& operator=(const TestServerProgram&) = delete;
  // Ends the program, which ends its servers.
  ~TestServerProgram();

  // What the program said of its servers: the text behind "ready ".
  const std::string& ready() const { return ready_; }

  // Has the program do something with one server, "kill" for example. Returns when it is done.
  void Command(const char* command, size_t server);

  // Ends the test program with an error message if `holds` is false.
  static void Require(bool holds, const std::string& name, const std::string& what);

 private:
  std::string ReadLine();

  const std::string name_;
  int pid_ = -1;
  std::FILE* to_ = nullptr;
  std::FILE* from_ = nullptr;
  std::string ready_;
};

}  // namespace hps
