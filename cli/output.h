// What a command prints: text for people, or one JSON object, on stdout; failures on stderr.
//
// In JSON mode the object is open while the command runs: a command adds its members, and a failure
// adds `error`, so that there is one object in any case.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "base/json_writer.h"

namespace hps::cli {

class Output {
 public:
  explicit Output(bool json);
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  bool is_json() const { return json_; }

  // The members of the open object. REQUIRES: is_json().
  JsonWriter& json() { return writer_; }

  // A line of text. REQUIRES: !is_json().
  void Line(std::string_view line);

  // A line on stderr that is no failure. REQUIRES: !is_json().
  void Warn(std::string_view line);

  // Text as it is, at once: what somebody watches. REQUIRES: !is_json().
  void Write(std::string_view text);

  // A whole JSON text that another unit has made, instead of the object. REQUIRES: nothing has been
  // added.
  void Print(std::string_view text);

  // Ends the object, and writes out everything: for a command that goes on running. What comes
  // after it is on stderr, or lines of text.
  void Publish();

  // Ends the output. `status` that is not ok becomes the line "hps: CODE: what" on stderr and, in
  // JSON, the member `error`. Errors: `status`, else UNAVAILABLE when stdout can't be written.
  absl::Status Finish(absl::Status status);

 private:
  const bool json_;
  bool replaced_ = false;
  bool failed_ = false;
  JsonWriter writer_;
};

// A number of bytes for people: "3.2 MiB".
std::string ReadableBytes(double bytes);
// "1.2 M".
std::string ReadableCount(double count);
// "%.<digits>f"
std::string Fixed(double value, int digits);

}  // namespace hps::cli
