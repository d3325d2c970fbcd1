#include "bench/serve/serve_world.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <span>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "bench/scratch.h"
#include "bench/serve/serve_client.h"
#include "hps/config.h"
#include "hps/store.h"
#include "import/generate.h"

namespace hps::bench {
namespace {

constexpr uint64_t kSeed = 7;
constexpr int kAnswerTimeoutMs = 10'000;
constexpr auto kEndTimeout = std::chrono::seconds(12);

absl::Status SystemError(const char* what) {
  return absl::UnavailableError(absl::StrCat("bench serve: ", what, ": ", std::strerror(errno)));
}

// `hps` itself, or the one beside the driver of the scenarios.
absl::StatusOr<std::string> FindProgram() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path program = self.parent_path() / "hps";
  if (error || access(program.c_str(), X_OK) != 0) {
    return absl::NotFoundError(
        absl::StrCat("bench serve: no program to serve with: ", program.string()));
  }
  return program.string();
}

// "http     http://127.0.0.1:80/" -> "127.0.0.1:80".
std::string AddressIn(const std::string& line) {
  const size_t begin = line.find_last_of(" /", line.size() - 3) + 1;
  return line.substr(begin, line.find_first_of("/\n", begin) - begin);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(
    const std::function<int(int output)>& body) {
  std::array<int, 2> pipe{};
  if (pipe2(pipe.data(), O_CLOEXEC) != 0) return SystemError("pipe");
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) {
    close(pipe[0]);
    close(pipe[1]);
    return SystemError("fork");
  }
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(EXIT_FAILURE);
    _exit(body(pipe[1]));
  }
  close(pipe[1]);
  return std::unique_ptr<ChildProcess>(new ChildProcess(pid, pipe[0]));
}

ChildProcess::~ChildProcess() {
  if (!has_ended_) {
    kill(pid_, SIGTERM);
    if (!Wait(kEndTimeout)) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }
  close(output_);
}

std::optional<int> ChildProcess::Wait(std::chrono::milliseconds timeout) {
  // The pipe closes when the child ends.
  pollfd wait{.fd = output_, .events = 0, .revents = 0};
  if (poll(&wait, 1, static_cast<int>(timeout.count())) != 1) return std::nullopt;
  int status = 0;
  if (waitpid(pid_, &status, 0) != pid_) return std::nullopt;
  has_ended_ = true;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

absl::StatusOr<std::string> ChildProcess::ReadUntil(char last) {
  std::string text;
  while (text.empty() || text.back() != last) {
    pollfd wait{.fd = output_, .events = POLLIN, .revents = 0};
    char next = 0;
    if (poll(&wait, 1, kAnswerTimeoutMs) != 1 || read(output_, &next, 1) != 1)
      return absl::UnavailableError("bench serve: a process ended, or said nothing: " + text);
    text += next;
  }
  return text;
}

uint64_t ChildProcess::resident_bytes() const {
  std::ifstream file(absl::StrCat("/proc/", pid_, "/statm"));
  uint64_t all = 0;
  uint64_t resident = 0;
  file >> all >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

double ChildProcess::processor_seconds() const {
  std::ifstream file(absl::StrCat("/proc/", pid_, "/stat"));
  std::string line;
  std::getline(file, line);
  // After the name, which may hold spaces, come the fields from the third on.
  std::istringstream rest(line.substr(std::min(line.size(), line.rfind(')') + 1)));
  constexpr int kUserTime = 14;
  std::string skipped;
  for (int field = 3; field < kUserTime; ++field) rest >> skipped;
  double user = 0;
  double system = 0;
  rest >> user >> system;
  return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

absl::StatusOr<std::unique_ptr<ServeWorld>> ServeWorld::Create(const std::string& directory,
                                                               size_t rows,
                                                               const std::string& settings) {
  auto world = std::unique_ptr<ServeWorld>(new ServeWorld(directory));
  HPS_RETURN_IF_ERROR(world->MakeStore(rows, settings));
  HPS_RETURN_IF_ERROR(world->StartServer());
  return world;
}

ServeWorld::~ServeWorld() {
  server_.reset();
  RemoveScratch(directory_);
}

absl::Status ServeWorld::MakeStore(size_t rows, const std::string& settings) {
  RemoveScratch(directory_);
  HPS_RETURN_IF_ERROR(MakeScratch(directory_));
  const std::string tables = directory_ + "/tables";
  HPS_RETURN_IF_ERROR(GenerateTables(
      {.out = tables, .tables = 1, .rows = rows, .dim = kServeDim, .seed = kSeed, .requests = 1}));
  std::ifstream file(tables + "/t0/key", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  keys_.resize(bytes.size() / sizeof(Key));
  std::memcpy(keys_.data(), bytes.data(), keys_.size() * sizeof(Key));
  if (keys_.empty()) return absl::DataLossError("bench serve: no keys in " + tables);
  config_path_ = directory_ + "/hps.toml";
  std::ofstream(config_path_) << "[store]\npath = \"store\"\n"
                                 "[l2]\nbytes_max = \"256MiB\"\npreload = 1.0\n"
                              << settings;
  HPS_ASSIGN_OR_RETURN(const Config config, LoadConfig(config_path_));
  return ImportTables(config, {.name = kServeModel, .from = tables}).status();
}

absl::Status ServeWorld::StartServer() {
  HPS_ASSIGN_OR_RETURN(program_, FindProgram());
  const std::string log = directory_ + "/server.log";
  // Before the fork: after it nothing may be allocated.
  const char* const grpc_address = GrpcProtocol().connect ? "127.0.0.1:0" : "";
  const std::array<const char*, 11> arguments = {
      "hps",         "serve",  "--config",   config_path_.c_str(), "--http",
      "127.0.0.1:0", "--grpc", grpc_address, "--metrics",          "",
      nullptr};
  HPS_ASSIGN_OR_RETURN(server_, ChildProcess::Start([&](int output) {
                         const int file = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
                         dup2(output, STDOUT_FILENO);
                         dup2(file, STDERR_FILENO);
                         execv(program_.c_str(), const_cast<char* const*>(arguments.data()));
                         return EXIT_FAILURE;
                       }));
  for (;;) {
    HPS_ASSIGN_OR_RETURN(const std::string line, server_->ReadUntil('\n'));
    if (line.starts_with("http ")) http_ = AddressIn(line);
    if (line.starts_with("grpc ")) grpc_ = AddressIn(line);
    if (line.starts_with("ready ")) return absl::OkStatus();
    if (line.starts_with("not ready")) return absl::UnavailableError("bench serve: " + line);
  }
}

std::vector<std::byte> ServeWorld::RowsOf(std::span<const Key> keys) {
  std::array<float, kServeDim> row{};
  std::vector<std::byte> rows(keys.size() * sizeof(row));
  for (size_t i = 0; i < keys.size(); ++i) {
    PlantedRow(kSeed, 0, keys[i], row);
    std::memcpy(rows.data() + i * sizeof(row), row.data(), sizeof(row));
  }
  return rows;
}

ServeRequest ServeWorld::MakeRequest(size_t key_count, uint64_t seed) const {
  std::mt19937_64 random(seed);
  ServeRequest request;
  for (size_t i = 0; i < key_count; ++i) request.keys.push_back(keys_[random() % keys_.size()]);
  request.rows = RowsOf(request.keys);
  return request;
}

}  // namespace hps::bench
