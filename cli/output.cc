#include "cli/output.h"

#include <array>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace hps::cli {
namespace {

std::string WithPrefix(double value, double step, const std::array<const char*, 5>& prefixes) {
  size_t i = 0;
  for (; value >= step && i + 1 < prefixes.size(); ++i) value /= step;
  return Fixed(value, i == 0 ? 0 : 1) + prefixes[i];
}

}  // namespace

Output::Output(bool json) : json_(json), writer_(stdout, NonFinite::kText) {
  if (json_) writer_.BeginObject();
}

void Output::Line(std::string_view line) {
  const bool written = std::fwrite(line.data(), 1, line.size(), stdout) == line.size();
  if (!written || std::fputc('\n', stdout) == EOF) failed_ = true;
}

void Output::Warn(std::string_view line) {
  const std::string shown = PrintableText(line) + "\n";
  std::fwrite(shown.data(), 1, shown.size(), stderr);
}

void Output::Write(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (!written || std::fflush(stdout) != 0) failed_ = true;
}

void Output::Print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) failed_ = true;
  replaced_ = true;
}

void Output::Publish() {
  if (json_ && !replaced_) {
    writer_.EndObject();
    if (!writer_.Flush() || std::fputc('\n', stdout) == EOF) failed_ = true;
    replaced_ = true;
  }
  if (std::fflush(stdout) != 0) failed_ = true;
}

absl::Status Output::Finish(absl::Status status) {
  const auto code = absl::StatusCodeToString(status.code());
  const std::string message = PrintableText({status.message().data(), status.message().size()});
  if (json_ && !replaced_) {
    if (!status.ok()) {
      writer_.Name("error").BeginObject();
      writer_.Member("code", std::string_view(code)).Member("message", std::string_view(message));
      writer_.EndObject();
    }
    writer_.EndObject();
    if (!writer_.Flush() || std::fputc('\n', stdout) == EOF) failed_ = true;
  }
  if (std::fflush(stdout) != 0) failed_ = true;
  if (status.ok() && failed_) return Finish(absl::UnavailableError("stdout can't be written"));
  if (!status.ok()) std::fprintf(stderr, "hps: %s: %s\n", code.c_str(), message.c_str());
  return status;
}

std::string Fixed(double value, int digits) {
  std::array<char, 64> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.*f", digits, value);
  return buffer.data();
}

std::string ReadableBytes(double bytes) {
  return WithPrefix(bytes, 1024, {" B", " KiB", " MiB", " GiB", " TiB"});
}

std::string ReadableCount(double count) {
  return WithPrefix(count, 1000, {"", " k", " M", " G", " T"});
}

}  // namespace hps::cli
