// Reads replies of a Redis server (RESP2) from a stream of bytes, on hiredis' parser.
//
// Nothing is allocated by what a reply announces: values are passed to a sink while they are
// parsed, and the sink refuses an array of a length that it does not expect. (hiredis' own objects
// reserve 7.6 GiB for "*1000000000".) Bytes of a value that has not arrived completely are bounded.
//
// For one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

struct redisReader;

namespace hps {

enum class ReplyType : uint8_t { kString, kStatus, kError, kInteger, kNil };

struct ReplyValue {
  ReplyType type = ReplyType::kNil;
  std::string_view text{};  // of a string, a status or an error; valid during the call only
  int64_t integer = 0;
};

// Depth 0 is the reply itself; `index` counts in the array that holds the value.
struct ReplyPlace {
  size_t depth = 0;
  size_t index = 0;
};

// Takes replies part by part, arrays before their elements. A function that returns false refuses
// the reply, which is a protocol error.
class ReplySink {
 public:
  virtual ~ReplySink() = default;
  virtual bool OnArray(ReplyPlace place, size_t count) = 0;
  virtual bool OnValue(ReplyPlace place, const ReplyValue& value) = 0;
  // The reply is complete.
  virtual bool OnEnd() = 0;
};

class ReplyReader {
 public:
  ReplyReader();
  ReplyReader(const ReplyReader&) = delete;
  ReplyReader& operator=(const ReplyReader&) = delete;

  // Parses what has arrived. Errors: DATA_LOSS (no RESP2, or refused); the stream is then unusable.
  absl::Status Feed(std::string_view bytes, ReplySink& sink);

  // Bytes of one incomplete value: the widest row and its header are far below.
  static constexpr size_t kPendingBytesMax = size_t{1} << 20;

 private:
  struct FreeReader {
    void operator()(redisReader* reader) const;
  };
  const std::unique_ptr<redisReader, FreeReader> reader_;
};

// A reply as a tree, for commands that are rare. Bounded in elements and bytes.
struct Reply {
  bool is_array = false;
  ReplyType type = ReplyType::kNil;
  std::string text{};
  int64_t integer = 0;
  std::vector<Reply> elements{};

  bool is_error() const { return !is_array && type == ReplyType::kError; }
};

class ReplyTreeSink final : public ReplySink {
 public:
  bool OnArray(ReplyPlace place, size_t count) override;
  bool OnValue(ReplyPlace place, const ReplyValue& value) override;
  bool OnEnd() override;

  // The complete replies so far.
  std::vector<Reply>& replies() { return replies_; }

  // A slot map of 16,384 ranges with three replicas each is smaller.
  static constexpr size_t kElementsMax = size_t{1} << 19;
  static constexpr size_t kTextBytesMax = size_t{16} << 20;

 private:
  Reply* Add(ReplyPlace place);

  std::vector<Reply> replies_;
  Reply current_;
  size_t element_count_ = 0;
  size_t text_bytes_ = 0;
};

}  // namespace hps
