#include "server/grpc/fuzz_wire_target.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <nghttp2/nghttp2.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string_view>
#include <thread>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/macros.h"
#include "base/mutex.h"
#include "hps/store.h"
#include "import/generate.h"
#include "server/core/protocol_server.h"
#include "server/core/server_core.h"
#include "server/grpc/test_http2_frames.h"
#include "server/grpc_codec/test_infer_messages.h"

namespace hps::server {
namespace {

// ---- The first byte of an input.
constexpr uint8_t kRawBit = 1;      // the rest is sent unchanged; it has the preface too
constexpr uint8_t kPatientBit = 2;  // the client reads until nothing more arrives
constexpr int kPieceShift = 3;      // the other bits: bytes are sent in pieces of 2^(bits - 1)

// ---- A frame in an input: type, flags, stream, two bytes of length, payload.
constexpr size_t kHeadBytes = 5;
// Types that are expanded. kCallType: the header fields of a call; the flags choose the method, and
// the payload has more fields. kMessageType: a gRPC message with the payload, and kEndStream.
constexpr uint8_t kCallType = 0xf0;
constexpr uint8_t kMessageType = 0xf1;

constexpr std::array<const char*, 12> kMethods = {
    "/inference.GRPCInferenceService/ModelInfer",
    "/inference.GRPCInferenceService/ModelStreamInfer",
    "/inference.GRPCInferenceService/ServerReady",
    "/inference.GRPCInferenceService/ModelMetadata",
    "/inference.GRPCInferenceService/ModelConfig",
    "/inference.GRPCInferenceService/ModelStatistics",
    "/inference.GRPCInferenceService/RepositoryIndex",
    "/inference.GRPCInferenceService/RepositoryModelLoad",
    "/grpc.health.v1.Health/Check",
    "/grpc.health.v1.Health/Watch",
    "/grpc.health.v1.Health/List",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
};
constexpr size_t kReflection = 11;

constexpr uint32_t kDim = 4;
constexpr auto kPatience = std::chrono::seconds(20);
constexpr int kSilenceMs = 2;
// After this number of inputs, another client looks up a row.
constexpr uint64_t kInputsPerCheck = 64;

std::string_view Take(std::string_view* text, size_t bytes) {
  const std::string_view taken = text->substr(0, bytes);
  text->remove_prefix(taken.size());
  return taken;
}

std::string FrameOf(uint8_t type, uint8_t flags, uint32_t stream, std::string_view payload) {
  if (type == kCallType) {
    const std::string path = kMethods[flags / 8 % kMethods.size()];
    const uint8_t ends = flags & kEndStream;
    return Http2Frame{NGHTTP2_HEADERS, static_cast<uint8_t>(kEndFields | ends), stream,
                      PackFields(CallFields(path)) + std::string(payload)}
        .bytes();
  }
  if (type == kMessageType)
    return Http2Frame{NGHTTP2_DATA, kEndStream, stream, Framed(payload, flags & 1)}.bytes();
  return Http2Frame{type, flags, stream, std::string(payload)}.bytes();
}

// Everything that the client sends.
std::string Wire(std::string_view input, bool is_raw) {
  if (is_raw) return std::string(input);
  std::string wire(NGHTTP2_CLIENT_MAGIC);
  while (input.size() >= kHeadBytes) {
    const std::string_view head = Take(&input, kHeadBytes);
    const std::string_view payload = Take(&input, LoadLittleEndian<uint16_t>(head.data() + 3));
    wire += FrameOf(static_cast<uint8_t>(head[0]), static_cast<uint8_t>(head[1]),
                    static_cast<uint8_t>(head[2]), payload);
  }
  return wire;
}

class Client {
 public:
  explicit Client(const std::string& address)
      : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    // From other addresses than 127.0.0.1, whose ports other programs need.
    constexpr uint32_t kAddresses = 200;
    static uint32_t number = 0;
    sockaddr_in from{};
    from.sin_family = AF_INET;
    from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1 + number++ % kAddresses);
    const int on = 1;
    HPS_CHECK(setsockopt(fd_, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on)) == 0);
    HPS_CHECK(bind(fd_, static_cast<sockaddr*>(static_cast<void*>(&from)), sizeof(from)) == 0);
    HPS_CHECK(connect(fd_, static_cast<sockaddr*>(static_cast<void*>(&to)), sizeof(to)) == 0);
    HPS_CHECK(setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0);
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  ~Client() { close(fd_); }

  // Stops when the server reads no more; the server closes the connection then.
  void Send(std::string_view bytes, size_t piece_bytes) const {
    while (!bytes.empty()) {
      const std::string_view piece = Take(&bytes, piece_bytes);
      if (send(fd_, piece.data(), piece.size(), MSG_NOSIGNAL) < std::ssize(piece)) return;
    }
  }
  void EndSending() const { shutdown(fd_, SHUT_WR); }
  // False: nothing arrived in this time. At the end of the connection, ended().
  bool Receive(int patience_ms) {
    pollfd wait{.fd = fd_, .events = POLLIN, .revents = 0};
    if (poll(&wait, 1, patience_ms) != 1) return false;
    std::array<char, 65536> room;
    const ssize_t bytes = recv(fd_, room.data(), room.size(), 0);
    ended_ = bytes <= 0;
    if (!ended_) received_.append(room.data(), static_cast<size_t>(bytes));
    return true;
  }
  bool ended() const { return ended_; }
  const std::string& received() const { return received_; }

 private:
  const int fd_;
  bool ended_ = false;
  std::string received_;
};

// A server of the model "m" with the table "t0".
class World {
 public:
  World() {
    std::string pattern = (std::filesystem::temp_directory_path() / "hps_fuzz_XXXXXX").string();
    HPS_CHECK(mkdtemp(pattern.data()) != nullptr);
    directory_ = pattern;
    Config config;
    config.store.path = directory_ + "/store";
    config.l2.bytes_max = uint64_t{16} << 20;
    config.l2.huge_pages = false;
    config.server.lookups = 1;
    config.server.threads = 2;
    config_ = config.server;
    const std::string tables = directory_ + "/m";
    HPS_CHECK(GenerateTables({.out = tables, .tables = 1, .rows = 1000, .dim = kDim}).ok());
    HPS_CHECK(ImportTables(config, {.name = "m", .from = tables}).ok());
    std::array<char, sizeof(Key)> key{};
    HPS_CHECK(
        !std::ifstream(tables + "/t0/key", std::ios::binary).read(key.data(), key.size()).fail());
    key_ = LoadLittleEndian<Key>(key.data());
    auto store = Store::Open(config, OpenMode::kServe);
    HPS_CHECK(store.ok());
    store_ = *std::move(store);
    auto core = ServerCore::Create(config, store_->models());
    HPS_CHECK(core.ok() && (*core)->LoadAll().ok());
    core_ = *std::move(core);
    auto server = StartGrpcServer({.config = &config_,
                                   .inference = &core_->engine(),
                                   .repository = &core_->repository(),
                                   .statistics = core_.get(),
                                   .counters = &core_->counters()},
                                  "127.0.0.1:0");
    HPS_CHECK(server.ok());
    server_ = *std::move(server);
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World() {
    server_.reset();
    core_.reset();
    store_.reset();
    std::filesystem::remove_all(directory_);
  }

  const std::string& address() const { return server_->address(); }

  // Expects that ended connections release their share of the capacity soon.
  void CheckNothingHeld() const {
    const Admission& admission = core_->engine().admission();
    const Deadline deadline = DeadlineAfter(RealClock(), kPatience);
    while (admission.calls_in_flight() + admission.keys_in_flight() + admission.bytes_in_flight()) {
      HPS_CHECK(RealClock().Now() < deadline);
      std::this_thread::yield();
    }
  }

  // Expects that another client gets a row.
  void CheckAnswers() const {
    const std::string key(AsText(std::as_bytes(std::span(&key_, 1))));
    const std::string request = Field(1, "m") + Input("t0", "INT64", {1}) + Field(7, key);
    std::array<float, kDim> row{};
    PlantedRow(1, 0, key_, row);
    const std::string_view wanted = AsText(std::as_bytes(std::span(row)));
    Client client(address());
    client.Send(std::string(NGHTTP2_CLIENT_MAGIC) + FrameOf(NGHTTP2_SETTINGS, 0, 0, "") +
                    FrameOf(kCallType, 0, 1, "") + FrameOf(kMessageType, 0, 1, request),
                SIZE_MAX);
    while (client.received().find(wanted) == std::string::npos) {
      HPS_CHECK(client.Receive(std::chrono::milliseconds(kPatience).count()) && !client.ended());
    }
  }

 private:
  std::string directory_;
  ServerConfig config_;
  Key key_ = 0;
  std::unique_ptr<Store> store_;
  std::unique_ptr<ServerCore> core_;
  std::unique_ptr<ProtocolServer> server_;
};

std::string SeedFrame(uint8_t type, uint8_t flags, uint8_t stream, std::string_view payload) {
  std::string length(2, '\0');
  StoreLittleEndian(length.data(), static_cast<uint16_t>(payload.size()));
  return BigEndian(type, 1) + BigEndian(flags, 1) + BigEndian(stream, 1) + length +
         std::string(payload);
}
std::string SeedCall(uint8_t stream, size_t method, std::string_view more = "") {
  return SeedFrame(kCallType, static_cast<uint8_t>(8 * method), stream, more);
}
std::string SeedMessage(uint8_t stream, std::string_view message) {
  return SeedFrame(kMessageType, 0, stream, message);
}

}  // namespace

void FuzzGrpcWire(std::span<const std::byte> bytes) {
  static Mutex mutex;
  MutexLock lock(mutex);
  static World world;
  static uint64_t inputs = 0;
  if (bytes.empty()) return;
  const auto mode = static_cast<uint8_t>(bytes[0]);
  const std::string wire = Wire(AsText(bytes.subspan(1)), (mode & kRawBit) != 0);
  const uint32_t piece = mode >> kPieceShift;
  {
    Client client(world.address());
    client.Send(wire, piece == 0 ? SIZE_MAX : size_t{1} << (piece - 1));
    if ((mode & kPatientBit) != 0) {
      while (client.Receive(kSilenceMs) && !client.ended()) continue;
    }
    client.EndSending();
    while (!client.ended()) HPS_CHECK(client.Receive(std::chrono::milliseconds(kPatience).count()));
  }
  world.CheckNothingHeld();
  if (inputs++ % kInputsPerCheck == 0) world.CheckAnswers();
}

std::vector<std::string> GrpcWireSeeds() {
  const std::string patient(1, static_cast<char>(kPatientBit));
  const std::string settings = SeedFrame(NGHTTP2_SETTINGS, 0, 0, "");
  const std::string narrow =
      SeedFrame(NGHTTP2_SETTINGS, 0, 0,
                BigEndian(NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 2) + BigEndian(40, 4));
  const std::string more_room = BigEndian(100, 4);
  const std::string infer = Field(1, "m") + Field(3, "id") + Input("t0", "INT64", {9}) +
                            Field(6, Field(1, "t0")) + Field(6, Field(1, "t0.status")) +
                            Field(7, Keys(9));
  const std::string large = Field(1, "m") + Input("t0", "INT64", {6000}) + Field(7, Keys(6000));
  const std::string fields = PackFields(CallFields(kMethods[0]));
  std::vector<std::string> seeds = {
      "",
      std::string(1, '\0') + settings + SeedCall(1, 0) + SeedMessage(1, infer),
      patient + settings + SeedCall(1, 0) + SeedMessage(1, infer) + SeedCall(3, 0) +
          SeedMessage(3, infer),
      std::string(1, static_cast<char>(kPatientBit | 1 << kPieceShift)) + settings +
          SeedCall(1, 0) + SeedMessage(1, infer),
      std::string(1, static_cast<char>(kPatientBit | 7 << kPieceShift)) + settings +
          SeedCall(1, 0) + SeedMessage(1, large),
      patient + narrow + SeedCall(1, 0) + SeedMessage(1, infer) +
          SeedFrame(NGHTTP2_WINDOW_UPDATE, 0, 1, more_room) +
          SeedFrame(NGHTTP2_WINDOW_UPDATE, 0, 0, more_room) + SeedFrame(NGHTTP2_SETTINGS, 1, 0, ""),
      // A stream of requests in pieces; one is cancelled.
      patient + settings + SeedCall(1, 1) + SeedFrame(NGHTTP2_DATA, 0, 1, Framed(infer)) +
          SeedFrame(NGHTTP2_DATA, 0, 1, Framed(infer).substr(0, 20)) +
          SeedFrame(NGHTTP2_DATA, kEndStream, 1, Framed(infer).substr(20)) + SeedCall(3, 1) +
          SeedMessage(3, infer) + SeedFrame(NGHTTP2_RST_STREAM, 0, 3, BigEndian(8, 4)),
      patient + settings + SeedCall(1, 9) + SeedMessage(1, "") +
          SeedFrame(NGHTTP2_PING, 0, 0, "12345678") +
          SeedFrame(NGHTTP2_GOAWAY, 0, 0, BigEndian(1, 4) + BigEndian(0, 4)),
      // Compressed, padded, with a priority, a time-out and trailers.
      patient + settings +
          SeedCall(1, 0, PackFields({{"grpc-timeout", "5m"}, {"grpc-encoding", "gzip"}})) +
          SeedFrame(NGHTTP2_DATA, kEndStream, 1, Framed(infer, 1)) +
          SeedFrame(NGHTTP2_HEADERS, kEndFields | NGHTTP2_FLAG_PADDED | NGHTTP2_FLAG_PRIORITY, 3,
                    std::string(1, '\2') + BigEndian(0, 4) + "\x10" + fields + "xx") +
          SeedFrame(NGHTTP2_DATA, NGHTTP2_FLAG_PADDED, 3, std::string(1, '\1') + Framed("") + "x") +
          SeedFrame(NGHTTP2_HEADERS, kEndFields | kEndStream, 3, PackFields({{"x", "y"}})),
      patient + settings + SeedFrame(NGHTTP2_HEADERS, 0, 1, fields.substr(0, 30)) +
          SeedFrame(NGHTTP2_CONTINUATION, kEndFields, 1, fields.substr(30)) + SeedMessage(1, infer),
      std::string(1, static_cast<char>(kRawBit | kPatientBit)) + std::string(NGHTTP2_CLIENT_MAGIC) +
          FrameOf(NGHTTP2_SETTINGS, 0, 0, "") + FrameOf(kCallType, 0, 1, "") +
          FrameOf(kMessageType, 0, 1, infer),
      std::string(1, static_cast<char>(kRawBit)) + "GET / HTTP/1.1\r\n\r\n",
  };
  // A file by its name, a file by a symbol, extensions, and the services.
  for (const std::string& asked : {Field(3, "inference.proto"), Field(4, "grpc.health.v1.Health"),
                                   Field(5, Field(1, "x")), Field(6, "x"), Field(7, "")}) {
    seeds.push_back(patient + settings + SeedCall(1, kReflection) +
                    SeedFrame(NGHTTP2_DATA, 0, 1, Framed(asked)) + SeedMessage(1, asked));
  }
  for (size_t method = 2; method < kMethods.size(); ++method) {
    seeds.push_back(patient + settings + SeedCall(1, method) + SeedMessage(1, Field(1, "m")) +
                    SeedCall(3, method) + SeedMessage(3, "") + SeedCall(5, method) +
                    SeedMessage(5, Field(1, "\xff")));
  }
  return seeds;
}

}  // namespace hps::server
