#include "l2_redis/command_writer.h"

#include <array>
#include <charconv>

namespace hps {
namespace {

void AppendHeader(char kind, size_t count, std::string& out) {
  std::array<char, 24> text;
  text[0] = kind;
  char* const end = std::to_chars(text.data() + 1, text.data() + text.size() - 2, count).ptr;
  end[0] = '\r';
  end[1] = '\n';
  out.append(text.data(), static_cast<size_t>(end + 2 - text.data()));
}

}  // namespace

void AppendCommandHeader(size_t count, std::string& out) { AppendHeader('*', count, out); }

void AppendPartHeader(size_t size, std::string& out) { AppendHeader('$', size, out); }

void AppendPart(std::string_view part, std::string& out) {
  AppendPartHeader(part.size(), out);
  out.append(part);
  out.append(kPartEnd);
}

void AppendCommand(std::initializer_list<std::string_view> parts, std::string& out) {
  AppendCommandHeader(parts.size(), out);
  for (const std::string_view part : parts) AppendPart(part, out);
}

}  // namespace hps
