// What the scenario "serve" asks: a small store with a planted truth, a process `hps serve` over
// it, and requests whose rows are known.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hps/types.h"

namespace hps::bench {

inline constexpr char kServeModel[] = "m";
inline constexpr char kServeTable[] = "t0";
inline constexpr uint32_t kServeDim = 32;
inline constexpr size_t kServeKeys = 1024;

// A process of one's own that ends with this object, and with this process.
class ChildProcess {
 public:
  // `body` runs in the child, which ends with what it returns. What the child writes to the
  // descriptor that it is given is what ReadLine and ReadAvailable return.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(
      const std::function<int(int output)>& body);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // Errors: UNAVAILABLE when the child ended, or said nothing within ten seconds.
  absl::StatusOr<std::string> ReadUntil(char last);

  pid_t pid() const { return pid_; }

  // Its exit status when it ends within `timeout` (-1 for a signal), else none. At the latest when
  // this object ends it is killed.
  std::optional<int> Wait(std::chrono::milliseconds timeout);

  // Resident memory, and processor time since its start. 0 when it has ended.
  uint64_t resident_bytes() const;
  double processor_seconds() const;

 private:
  ChildProcess(pid_t pid, int output) : pid_(pid), output_(output) {}

  const pid_t pid_;
  const int output_;
  bool has_ended_ = false;  // and was waited for
};

struct ServeRequest {
  std::vector<Key> keys;
  std::vector<std::byte> rows;  // as planted
};

// `count` requests of `keys` keys each that the store has.
class ServeWorld {
 public:
  // Makes the store below `directory` and starts the server. `settings` is appended to the
  // configuration.
  // Errors: of the store; NOT_FOUND where there is no program `hps` to run.
  static absl::StatusOr<std::unique_ptr<ServeWorld>> Create(const std::string& directory,
                                                            size_t rows,
                                                            const std::string& settings);
  ~ServeWorld();

  const ChildProcess& server() const { return *server_; }
  const std::string& http() const { return http_; }  // host:port
  const std::string& grpc() const { return grpc_; }  // empty in a build without gRPC
  const std::string& config_path() const { return config_path_; }
  const std::string& directory() const { return directory_; }
  const std::string& program() const { return program_; }  // that serves

  // All keys of the table, and what was planted for keys.
  std::span<const Key> keys() const { return keys_; }
  static std::vector<std::byte> RowsOf(std::span<const Key> keys);

  // Random keys of the table, the same ones for the same seed.
  ServeRequest MakeRequest(size_t key_count, uint64_t seed) const;

 private:
  explicit ServeWorld(std::string directory) : directory_(std::move(directory)) {}
  absl::Status MakeStore(size_t rows, const std::string& settings);
  absl::Status StartServer();

  const std::string directory_;
  std::string config_path_;
  std::string program_;
  std::vector<Key> keys_;
  std::unique_ptr<ChildProcess> server_;
  std::string http_;
  std::string grpc_;
};

}  // namespace hps::bench
